"""Imports of edge lists on a cluster, with Apache Spark 4.

    spark = SparkSession.builder.getOrCreate()
    edges = spark.read.csv("/data/edges/", sep="\\t", schema="lhs string, rel string, rhs string")
    weighbridge.spark.import_edges(spark, edges, "/shared/graph", config="config.py")

- `import_edges` makes the input folders of PyTorch-BigGraph, as `weighbridge.import_edges` does on one machine;
- `BigGraphDataSource` writes a frame of numbered edges as edge files.

Needs the package `pyspark` (`pip install weighbridge[spark]`). Weighbridge must be installed on all machines, and the target
must be in a file system that all of them share, under the same path.
"""

from __future__ import annotations

from typing import List

from ..dtypes import need

need("pyspark", "imports on a cluster", "'weighbridge[spark]'")

from .importing import import_edges  # noqa: E402
from .source import BigGraphDataSource  # noqa: E402

__all__: List[str] = ["BigGraphDataSource", "import_edges"]
