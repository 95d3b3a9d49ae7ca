"""The e-graph: encoding for egglog, saturation in a worker process, snapshots and how they are matched."""
