"""Files of the services between roles."""

from pagewire_protos.frontend.v1 import peer_pb2
from pagewire_protos.kvstore.v1 import adapter_store_pb2, kv_store_pb2
from pagewire_protos.scheduler.v1 import (
    admin_pb2,
    frontend_attach_pb2,
    standby_pb2,
    worker_attach_pb2,
)
from pagewire_protos.worker.v1 import adapter_content_pb2, kv_transfer_pb2

INTERNAL = (
    *(peer_pb2, adapter_store_pb2, kv_store_pb2, frontend_attach_pb2, worker_attach_pb2),
    *(adapter_content_pb2, kv_transfer_pb2, admin_pb2, standby_pb2),
)
