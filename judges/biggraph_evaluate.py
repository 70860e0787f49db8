"""PyTorch-BigGraph judges `evaluate`, `neighbors` and `rank`: its own evaluators rank the same edges.

    python judges/biggraph_evaluate.py WEIGHBRIDGE

Trains a small model for every operator and comparator with upstream's trainer: static relations with two partitions and global
embeddings, and dynamic relations; with and without bias. Filtered ranks of static relations, ranks among whole types, neighbors
and predictions, which upstream does not have, are computed here with numpy. Runs with the release on PyPI (torchbiggraph 1.0.0),
torch 2.2, h5py 3. Exit code 0: all agree.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import torch
from torch.optim import Adagrad
from torchbiggraph.batching import process_in_batches
from torchbiggraph.checkpoint_manager import CheckpointManager, ConfigMetadataProvider
from torchbiggraph.config import parse_config
from torchbiggraph.eval import RankingEvaluator, do_eval_and_report_stats
from torchbiggraph.filtered_eval import FilteredRankingEvaluator
from torchbiggraph.graph_storages import EDGE_STORAGES
from torchbiggraph.model import make_model
from torchbiggraph.row_adagrad import RowAdagrad
from torchbiggraph.stats import Stats
from torchbiggraph.train import Trainer
from torchbiggraph.types import Side

torch.set_num_threads(1)
OPERATORS = ["none", "diagonal", "translation", "linear", "affine", "complex_diagonal"]
COMPARATORS = ["dot", "cos", "l2", "squared_l2"]
COUNTS = {"user": [17, 14], "item": [19]}
DIMENSION = 8
TOLERANCE = 1e-4
checks = failures = 0


def check(what, good, note=""):
    global checks, failures
    checks += 1
    if not good:
        failures += 1
        print("FAIL", what, note)


def run(*arguments, text=None):
    done = subprocess.run([binary, *map(str, arguments), "--json"], capture_output=True, text=True, input=text)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


class Graph:
    """Entities and edges of one form: static relations of two types, or dynamic ones of one type."""

    def __init__(self, folder, dynamic, partitions):
        self.folder, self.dynamic = folder, dynamic
        users = COUNTS["user"] if partitions == 2 else [sum(COUNTS["user"])]
        self.counts = {"user": users} if dynamic else {"user": users, "item": COUNTS["item"]}
        self.relations = [("all", "user", "user")] if dynamic else [("follows", "user", "user"), ("likes", "user", "item")]
        self.relation_count = 3 if dynamic else 2
        self.entities = os.path.join(folder, "entities")
        os.makedirs(self.entities)
        for kind, counts in self.counts.items():
            for part, count in enumerate(counts):
                with open(os.path.join(self.entities, f"entity_count_{kind}_{part}.txt"), "w") as file:
                    file.write(f"{count}\n")
                with open(os.path.join(self.entities, f"entity_names_{kind}_{part}.json"), "w") as file:
                    json.dump([f"{kind}-{part}-{row}" for row in range(count)], file)
        names = ["r0", "r1", "r2"] if dynamic else [name for name, _, _ in self.relations]
        with open(os.path.join(self.entities, "dynamic_rel_names.json"), "w") as file:
            json.dump(names, file)
        if dynamic:
            with open(os.path.join(self.entities, "dynamic_rel_count.txt"), "w") as file:
                file.write("3\n")
        random = np.random.default_rng(7)
        self.train = self.edges("train", 200, random)
        self.test = self.edges("test", 60, random)

    def kinds(self, relation):
        return self.relations[0 if self.dynamic else relation][1:]

    def edges(self, name, count, random):
        """Random edges: buckets as files, and all as relation, rows of whole types, partitions."""
        folder = os.path.join(self.folder, name)
        os.makedirs(folder)
        found, buckets = [], {}
        for _ in range(count):
            relation = int(random.integers(self.relation_count))
            rows, parts, ids = [], [], []
            for kind in self.kinds(relation):
                counts = self.counts[kind]
                row = int(random.integers(sum(counts)))
                part = int(len(counts) == 2 and row >= counts[0])
                rows.append(row)
                parts.append(part)
                ids.append(row - part * counts[0])
            found.append((relation, *rows, *parts))
            buckets.setdefault(tuple(parts), []).append((*ids, relation))
        parts = range(len(self.counts["user"]))
        for left, right in itertools.product(parts, parts):
            with h5py.File(os.path.join(folder, f"edges_{left}_{right}.h5"), "w") as file:
                file.attrs["format_version"] = 1
                columns = np.array(buckets.get((left, right), []), dtype=np.int64).reshape(-1, 3)
                for place, column in enumerate(["lhs", "rhs", "rel"]):
                    file[column] = columns[:, place]
        return found


def configuration(graph, checkpoint, operator, comparator, bias, max_norm=None):
    relations = [
        dict(name=name, lhs=lhs, rhs=rhs, operator=operator, all_negs=True) for name, lhs, rhs in graph.relations
    ]
    return dict(
        entities={kind: dict(num_partitions=len(counts)) for kind, counts in graph.counts.items()},
        relations=relations, dimension=DIMENSION, global_emb=not graph.dynamic, comparator=comparator, bias=bias,
        dynamic_relations=graph.dynamic, loss_fn="softmax", lr=0.1, batch_size=50, num_batch_negs=50, num_uniform_negs=0,
        max_norm=max_norm, workers=1, num_epochs=1, entity_path=graph.entities, edge_paths=[os.path.join(graph.folder, "test")],
        checkpoint_path=checkpoint,
    )


def buckets(graph):
    parts = range(len(graph.counts["user"]))
    return itertools.product(parts, parts)


def place(model, tables, left, right):
    """Gives the model the tables of a bucket."""
    for kind, parts in tables.items():
        model.set_embeddings(kind, parts[left if len(parts) > 1 else 0], Side.LHS)
        model.set_embeddings(kind, parts[right if len(parts) > 1 else 0], Side.RHS)


def trained(graph, config):
    """Trains an epoch on each bucket, and writes the checkpoint as upstream's trainer does."""
    tables = {
        kind: [torch.nn.Parameter(torch.randn(count, DIMENSION) * 0.3) for count in counts]
        for kind, counts in graph.counts.items()
    }
    model = make_model(config)
    # Trained parameters should differ from their first values.
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter) * 0.2
    parameters = list(model.parameters())
    optimizer = Adagrad(parameters, lr=config.lr) if parameters else None

    class Nothing:
        def step(self, closure=None):
            pass

    trainer = Trainer(optimizer or Nothing(), config.loss_fn, config.margin, config.relations)
    for kind, parts in tables.items():
        for part, table in enumerate(parts):
            trainer.entity_optimizers[kind, part] = RowAdagrad([table], lr=config.lr)
    storage = EDGE_STORAGES.make_instance(os.path.join(graph.folder, "train"))
    for left, right in buckets(graph):
        place(model, tables, left, right)
        edges = storage.load_edges(left, right)
        if len(edges):
            process_in_batches(config.batch_size, model, trainer, edges)
    manager = CheckpointManager(config.checkpoint_path)
    manager.register_metadata_provider(ConfigMetadataProvider(config))
    manager.write_config(config)
    for kind, parts in tables.items():
        for part, table in enumerate(parts):
            manager.write(kind, part, table.detach(), None)
            model.clear_embeddings(kind, Side.LHS)
            model.clear_embeddings(kind, Side.RHS)
    manager.write_model(model.state_dict(), None)
    manager.write_new_version(config)
    manager.switch_to_new_version()
    return model, tables


def evaluated(graph, config, model, tables, evaluator):
    """Upstream's statistics of the test edges."""
    storage = EDGE_STORAGES.make_instance(config.edge_paths[0])
    stats = []
    model.eval()
    for left, right in buckets(graph):
        # Lookups with a maximum norm change the rows.
        copies = {kind: [torch.nn.Parameter(table.detach().clone()) for table in parts] for kind, parts in tables.items()}
        place(model, copies, left, right)
        edges = storage.load_edges(left, right)
        if len(edges):
            stats.append(process_in_batches(config.batch_size, model, evaluator, edges))
    return Stats.sum(stats).average()


class Brute:
    """The same scores with numpy, in double precision."""

    def __init__(self, graph, config, model, tables):
        self.graph, self.config = graph, config
        self.tables = {}
        state = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
        self.state = state
        for kind, parts in tables.items():
            rows = np.concatenate([table.detach().double().numpy() for table in parts])
            if config.max_norm is not None:
                norms = np.linalg.norm(rows, axis=1, keepdims=True)
                rows = np.where(norms > config.max_norm, rows * config.max_norm / (norms + 1e-7), rows)
            if config.global_emb:
                rows = rows + state[f"global_embs.emb_{kind}"]
            self.tables[kind] = rows

    def operated(self, relation, side, rows):
        prefix = f"{side}_operators.{0 if self.graph.dynamic else relation}."
        values = {name[len(prefix):]: value for name, value in self.state.items() if name.startswith(prefix)}
        if self.graph.dynamic:
            values = {name if name in ("real", "imag") else name[:-1]: value[relation] for name, value in values.items()}
        operator = self.config.relations[0 if self.graph.dynamic else relation].operator
        if operator == "none":
            return rows
        if operator == "diagonal":
            return rows * values["diagonal"]
        if operator == "translation":
            return rows + values["translation"]
        if operator in ("linear", "affine"):
            return rows @ values["linear_transformation"].T + values.get("translation", 0)
        half = DIMENSION // 2
        real, imag = rows[:, :half], rows[:, half:]
        a, b = values["real"], values["imag"]
        return np.concatenate([real * a - imag * b, real * b + imag * a], axis=1)

    def scores(self, queries, rows, comparator=None):
        """Scores of each query with each row."""
        comparator = comparator or self.config.comparator
        added = 0
        if self.config.bias:
            added = queries[:, :1] + rows[:, :1].T
            queries, rows = queries[:, 1:], rows[:, 1:]
        if comparator == "cos":
            queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
            rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        if comparator in ("dot", "cos"):
            return queries @ rows.T + added
        squares = ((queries[:, None, :] - rows[None, :, :]) ** 2).sum(-1)
        return (-squares if comparator == "squared_l2" else -np.sqrt(squares)) + added

    def corrupted(self, edge, side):
        """Scores of an edge with each row in place of one side, which is the last for the true row."""
        relation, left, right = edge[:3]
        lhs, rhs = (self.tables[kind] for kind in self.graph.kinds(relation))
        one = lambda rows, row: rows[row:row + 1]
        if side == 1 and self.graph.dynamic:
            return self.scores(self.operated(relation, "lhs", one(lhs, left)), rhs)[0]
        if side == 1:
            return self.scores(one(lhs, left), self.operated(relation, "rhs", rhs))[0]
        return self.scores(self.operated(relation, "rhs", one(rhs, right)), lhs)[0]

    def ranks(self, known=(), candidates=None):
        """Ranks of both sides of each edge; `candidates` are the rows of types to rank among."""
        ranks = []
        for edge in self.graph.test:
            for side in (0, 1):
                scores = self.corrupted(edge, side)
                own = edge[1 + side]
                given = (candidates or {}).get(self.graph.kinds(edge[0])[side])
                negative = np.ones(len(scores), dtype=bool) if given is None else np.isin(np.arange(len(scores)), given)
                negative[own] = False
                for other in known:
                    if other[0] == edge[0] and other[2 - side] == edge[2 - side]:
                        negative[other[1 + side]] = False
                ranks.append(1 + int((scores[negative] >= scores[own]).sum()))
        return np.array(ranks, dtype=float)


def metrics(ranks):
    return dict(pos_rank=ranks.mean(), mrr=(1 / ranks).mean(), r1=(ranks <= 1).mean(), r10=(ranks <= 10).mean(),
                r50=(ranks <= 50).mean())


def compare(what, found, expected):
    own = found["metrics"]
    own = dict(pos_rank=own["mean_rank"], mrr=own["mrr"], r1=own["hits"]["1"], r10=own["hits"]["10"], r50=own["hits"]["50"])
    for name, value in own.items():
        check(f"{what} {name}", abs(value - expected[name]) <= TOLERANCE * max(1, abs(expected[name])),
              f"{value}, expected {expected[name]}")


def compare_neighbors(what, found, scores, skipped=None):
    """Compares one list of neighbors with the scores of all rows."""
    scores = scores.copy()
    if skipped is not None:
        scores[skipped] = -np.inf
    order = np.argsort(-scores, kind="stable")[:len(found["neighbors"])]
    rows = [neighbor["row"] for neighbor in found["neighbors"]]
    near = np.allclose([neighbor["score"] for neighbor in found["neighbors"]], scores[order], rtol=1e-4, atol=1e-4)
    # Rows of nearly the same score may be swapped.
    check(what, near and np.allclose(scores[rows], scores[order], rtol=1e-5, atol=1e-5), f"{rows}, expected {order}")


def model(out, graph, number, operator, comparator, bias, max_norm=None):
    what = f"{'dynamic' if graph.dynamic else 'static'} {len(graph.counts['user'])} {operator} {comparator} bias {bias}"
    torch.manual_seed(number)
    folder = os.path.join(out, f"model{number}")
    raw = configuration(graph, folder, operator, comparator, bias, max_norm)
    config = parse_config(raw)
    trained_model, tables = trained(graph, config)
    brute = Brute(graph, config, trained_model, tables)
    test, train = (os.path.join(graph.folder, name) for name in ("test", "train"))
    found = run("evaluate", folder, "--edges", test, "--negatives", "partition")
    expected = evaluated(graph, config, trained_model, tables, RankingEvaluator())
    check(f"{what}: edges", found["metrics"]["edges"] == expected.count)
    compare(f"{what}: raw, as upstream", found, expected.metrics)
    # Both are estimates of one pair for each edge and side.
    check(f"{what}: auc", abs(found["metrics"]["auc"] - expected.metrics["auc"]) < 0.35, found["metrics"]["auc"])
    if number % 8 == 0:
        *_, (_, _, whole) = do_eval_and_report_stats(config)
        compare(f"{what}: raw, as torchbiggraph_eval", found, whole.metrics)
    found = run("evaluate", folder, "--edges", test, "--filter", train, "--filter", test)
    if graph.dynamic and len(graph.counts["user"]) == 1:
        evaluator = FilteredRankingEvaluator(config, [train, test])
        expected = evaluated(graph, config, trained_model, tables, evaluator).metrics
        compare(f"{what}: filtered, as upstream", found, expected)
    compare(f"{what}: filtered", found, metrics(brute.ranks(graph.train + graph.test)))
    if number % 4 == 0:
        compare(f"{what}: among all", run("evaluate", folder, "--edges", test), metrics(brute.ranks()))
    if number % 4 == 1:
        candidates(what, folder, graph, brute)
    if number % 3 == 0:
        neighbors(what, folder, graph, brute)


def candidates(what, folder, graph, brute):
    """Ranks among given entities: of one type, and of all types with known edges excluded."""
    test, train = (os.path.join(graph.folder, name) for name in ("test", "train"))
    random = np.random.default_rng(len(what))
    given, files = {}, []
    for kind, counts in graph.counts.items():
        names = [f"{kind}-{part}-{row}" for part, count in enumerate(counts) for row in range(count)]
        given[kind] = random.permutation(len(names))[:9]
        files.append(os.path.join(folder, f"candidates-{kind}.txt"))
        with open(files[-1], "w") as file:
            # The last name repeats.
            file.writelines(f"{names[row]}\n" for row in [*given[kind], given[kind][0]])
    kinds = list(given)
    one = files[0] if len(kinds) == 1 else f"{kinds[0]}={files[0]}"
    found = run("evaluate", folder, "--edges", test, "--candidates", one)
    check(f"{what}: number of candidates", found["candidates"] == {kinds[0]: 9}, found["candidates"])
    compare(f"{what}: among given", found, metrics(brute.ranks(candidates={kinds[0]: given[kinds[0]]})))
    all_of = [f"--candidates={kind}={file}" for kind, file in zip(kinds, files)]
    found = run("evaluate", folder, "--edges", test, "--filter", train, "--filter", test, *all_of)
    compare(f"{what}: among given, filtered", found, metrics(brute.ranks(graph.train + graph.test, given)))


def neighbors(what, folder, graph, brute):
    users = brute.tables["user"]
    found = run("neighbors", folder, "user[0:31:6]", "-k", 5)
    for query in found["queries"]:
        row = query["row"]
        compare_neighbors(f"{what}: neighbors", query, brute.scores(users[row:row + 1], users)[0], row)
    found = run("neighbors", folder, "embeddings.user", "--queries", "-", "--by", "l2", "-k", 3, text=f"{NAME}\n")
    row = found["queries"][0]["row"]
    check(f"{what}: row of a name", found["queries"][0]["name"] == NAME and row == 3)
    compare_neighbors(f"{what}: by l2", found["queries"][0], brute.scores(users[3:4], users, "l2")[0], 3)
    relation = graph.relation_count - 1
    for edge in [edge for edge in graph.test if edge[0] == relation][:2]:
        kinds = graph.kinds(relation)
        name = f"r{relation}" if graph.dynamic else graph.relations[relation][0]
        found = run("neighbors", folder, f"user[{edge[1]}]", "--relation", name, "-k", 4)["queries"][0]
        skipped = edge[1] if kinds[0] == kinds[1] else None
        compare_neighbors(f"{what}: predicted right sides", found, brute.corrupted(edge, 1), skipped)
        reverse = ["--reverse"] if kinds[0] == kinds[1] else []
        found = run("neighbors", folder, f"{kinds[1]}[{edge[2]}]", "--relation", name, "-k", 4, *reverse)["queries"][0]
        skipped = edge[2] if kinds[0] == kinds[1] else None
        compare_neighbors(f"{what}: predicted left sides", found, brute.corrupted(edge, 0), skipped)
        found = run("rank", folder, f"user[{edge[1]}]", f"{kinds[1]}[{edge[2]}]", "--relation", relation)
        for side, word in enumerate(("lhs", "rhs")):
            scores = brute.corrupted(edge, side)
            own = scores[edge[1 + side]]
            others = np.delete(scores, edge[1 + side])
            check(f"{what}: rank", found[word]["rank"] == 1 + (others >= own).sum() and np.isclose(found[word]["score"], own, rtol=1e-4, atol=1e-4))


NAME = "user-0-3"


def vectors(out):
    """Neighbors of plain tables."""
    random = np.random.default_rng(5)
    for dtype in (np.float32, np.float64, np.float16):
        rows = random.normal(size=(500, 20)).astype(dtype)
        path = os.path.join(out, f"{np.dtype(dtype).name}.npy")
        np.save(path, rows)
        wide = rows.astype(np.float64)
        unit = wide / np.linalg.norm(wide, axis=1, keepdims=True)
        found = run("neighbors", path, "[10:20]", "-k", 7)
        check("vectors: by cos", found["comparator"] == "cos")
        for query in found["queries"]:
            compare_neighbors("vectors: cos", query, unit @ unit[query["row"]], query["row"])
        found = run("neighbors", path, "[3]", "--by", "squared_l2")
        compare_neighbors("vectors: squared_l2", found["queries"][0], -((wide - wide[3]) ** 2).sum(1), 3)


if __name__ == "__main__":
    binary = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as out:
        graphs = [
            Graph(os.path.join(out, name), dynamic, parts)
            for name, dynamic, parts in (("static", False, 2), ("dynamic", True, 1), ("parts", True, 2))
        ]
        cases = [
            (graph, operator, comparator, bias)
            for graph in graphs[:2] for operator in OPERATORS for comparator in COMPARATORS for bias in (False, True)
        ]
        cases += [(graphs[2], operator, "dot", False) for operator in OPERATORS]
        for number, case in enumerate(cases):
            model(out, case[0], number, *case[1:])
        model(out, graphs[0], len(cases), "diagonal", "l2", False, max_norm=0.9)
        vectors(out)
    print(f"{len(cases) + 1} models, {checks} checks, {failures} failures")
    sys.exit(1 if failures else 0)
