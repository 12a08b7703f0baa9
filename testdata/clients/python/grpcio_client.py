import grpc

import scenarios

# Messages are bytes: the fake sends back what came.
channel = grpc.secure_channel("grpc.example.com:443", grpc.ssl_channel_credentials())
MESSAGES = [b"hello"] * 5


def unary():
    return channel.unary_unary("/quota.Test/Unary")(b"hello").decode()


def streams():
    served = list(channel.unary_stream("/quota.Test/Serve")(b"hello"))
    channel.stream_unary("/quota.Test/Collect")(iter(MESSAGES))
    echoed = list(channel.stream_stream("/quota.Test/Echo")(iter(MESSAGES)))
    return f"{len(served)} served, 1 collected, {len(echoed)} echoed"


def statuses():
    """800 calls that fail, each with a status and a text of its own, alternating with good ones."""
    fail, good = channel.unary_unary("/quota.Test/Fail"), channel.unary_unary("/quota.Test/Unary")
    failed = 0
    for i in range(800):
        try:
            fail(b"hello", metadata=(("x-want", str(i % 16 + 1)), ("x-text", f"call {i}")))
        except grpc.RpcError as error:
            if error.code().value[0] != i % 16 + 1 or error.details() != f"call {i}":
                raise
            failed += 1
        assert good(b"hello") == b"hello"
    return f"{failed} failed as they should, {i + 1} good"


scenarios.run(globals())
