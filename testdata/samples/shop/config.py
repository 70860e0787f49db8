def get_torchbiggraph_config():
    return dict(
        entities={"user": {"num_partitions": 2}, "item": {"num_partitions": 1}},
        relations=[
            {"name": "follows", "lhs": "user", "rhs": "user", "operator": "translation"},
            {"name": "buys", "lhs": "user", "rhs": "item", "operator": "translation"},
        ],
        entity_path="data/entities",
        edge_paths=["data/train"],
        checkpoint_path="model",
        dimension=8,
    )
