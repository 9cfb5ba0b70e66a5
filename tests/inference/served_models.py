"""A Ray of its own with a deployment of Ray Serve, in a process of its own; it does what stands on its lines of input.

`scale N`: so many replicas; `group`: one more deployment, with a placement group; `shutdown`: Ray Serve ends, Ray stays.
"""

from __future__ import annotations

import sys

import ray
from ray import serve
from ray.serve import Deployment

from services.runtime.local_ray import start_local_ray


class Served:
    def __call__(self) -> str:
        return "served"


Model: Deployment = serve.deployment()(Served)


def main() -> None:
    start_local_ray(
        num_cpus=16,
        num_gpus=8,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 2**20,
        _node_ip_address="127.0.0.1",
    )
    serve.start(proxy_location="Disabled")
    _deploy(1)
    print(ray.get_runtime_context().gcs_address, flush=True)
    for line in sys.stdin:
        match line.split():
            case ["scale", replicas]:
                _deploy(int(replicas))
            case ["group"]:
                bundles = [{"CPU": 1.0, "GPU": 1.0}, {"CPU": 1.0, "GPU": 1.0}]
                group = Model.options(placement_group_bundles=bundles, placement_group_strategy="STRICT_PACK")
                serve.run(group.bind(), name="large", route_prefix=None)
            case ["shutdown"]:
                serve.shutdown()  # type: ignore[no-untyped-call]  # Ray has no types for it
            case _:
                raise ValueError(line)
        print("done", flush=True)


def _deploy(replicas: int) -> None:
    """Half a GPU each, and the CPU that Ray Serve takes where nothing is said."""
    options = {"num_gpus": 0.5}
    serve.run(Model.options(num_replicas=replicas, ray_actor_options=options).bind(), name="small", route_prefix=None)


if __name__ == "__main__":
    main()
