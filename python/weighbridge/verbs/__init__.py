"""The verbs of the command as functions. Their keywords are the flags of the command.

>>> import weighbridge
>>> weighbridge.diff("net.safetensors", "net.safetensors")
<DiffReport same, 3 pairs equal>

The flag `--no-state` is the keyword `no_state`, and `--from` is `from_`. A repeatable flag takes a text or a list; a flag
written `NAME=VALUE` also takes a dict. Each verb returns a report with the attributes that the command prints with
`--json`; `to_dict()` returns that document. Findings are not exceptions; errors are.
"""

from __future__ import annotations

from .checking import ScanReport, VerifyReport, scan, scan_rules, verify
from .comparing import DiffReport, diff
from .converting import Conversion, SaveReport, convert
from .cutting import MergeReport, ShardReport, merge, shard
from .editing import EditReport, edit
from .importing import ImportReport, import_edges
from .looking import Info, Listing, Shown, StatsReport, info, ls, show, stats
from .programs import ProgramReport, program
from .ranking import EvaluateReport, NeighborsReport, RankReport, evaluate, neighbors, rank
from .report import Finding, Loss, Report
from .sealing import SealReport, seal
from .versions import StoreReport, checkpoint

__all__ = [
    "Conversion",
    "DiffReport",
    "EditReport",
    "EvaluateReport",
    "Finding",
    "ImportReport",
    "Info",
    "Listing",
    "Loss",
    "MergeReport",
    "NeighborsReport",
    "ProgramReport",
    "RankReport",
    "Report",
    "SaveReport",
    "ScanReport",
    "SealReport",
    "ShardReport",
    "Shown",
    "StatsReport",
    "StoreReport",
    "VerifyReport",
    "checkpoint",
    "convert",
    "diff",
    "edit",
    "evaluate",
    "import_edges",
    "info",
    "ls",
    "merge",
    "neighbors",
    "program",
    "rank",
    "scan",
    "scan_rules",
    "seal",
    "shard",
    "show",
    "stats",
    "verify",
]
