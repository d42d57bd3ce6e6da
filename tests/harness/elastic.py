"""elastic.py PORT RANKS PROGRAM [ARGUMENT]...: starts PROGRAM as torchrun does, by its elastic agent."""
import sys

try:
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch
except ImportError as error:
    print(f"no torch here: {error}", file=sys.stderr)
    sys.exit(77)

if __name__ == "__main__":
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=int(sys.argv[2]),
        run_id="abc",
        rdzv_backend="static",
        rdzv_endpoint=f"127.0.0.1:{sys.argv[1]}",
        rdzv_configs={"rank": 0},
        max_restarts=0,
        monitor_interval=0.2,
        start_method="spawn",
    )
    elastic_launch(config, sys.argv[3])(*sys.argv[4:])
