"""Many tasks: in processes of this machine or on a Dask cluster, each result kept as it arrives."""
