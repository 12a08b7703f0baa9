# quotactl meter puts this folder first in PYTHONPATH: connections to metered hosts go to the meter,
# and the run's CA is trusted beside what the program loads. An error leaves Python as it was.
import os
import sys


def trust(ssl, ca):
    def adding(method):
        def load_and_add(self, *args, **kwargs):
            method(self, *args, **kwargs)
            try:
                load(self, ca)
            except Exception:  # the meter has ended
                pass
        return load_and_add
    load = ssl.SSLContext.load_verify_locations
    for name in "load_verify_locations", "set_default_verify_paths":
        setattr(ssl.SSLContext, name, adding(getattr(ssl.SSLContext, name)))


def redirect(socket, hosts, uid, ip, listener):
    def metered(host, port, type, flags):
        port = port.decode() if isinstance(port, bytes) else str(port)
        if port not in ("443", "https") or type not in (0, socket.SOCK_STREAM) or flags & socket.AI_NUMERICHOST:
            return False
        name = (host if isinstance(host, str) else bytes(host).decode()).encode("idna").decode().lower()
        name = name[:-1] if name.endswith(".") else name
        return os.geteuid() == uid and not name.replace(".", "").isdigit() and ":" not in name and any(name == h or h[0] == "*" and name.endswith(h[1:]) for h in hosts)

    def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
        try:
            if metered(host, port, type, flags):
                flags = flags & ~socket.AI_ADDRCONFIG | (family == socket.AF_INET6 and socket.AI_V4MAPPED)
                host, port = ip, listener
        except Exception:  # host is no name: lookup says so
            pass
        return lookup(host, port, family, type, proto, flags)

    def mapping(method):  # for programs that take the address alone from the answer, not the port
        def connect(self, address):
            if isinstance(address, tuple) and address[:2] in ((ip, 443), ("::ffff:" + ip, 443)):
                address = (address[0], listener) + address[2:]
            return method(self, address)
        return connect
    import _socket  # which socket asks, and gevent in its stead
    lookup, _socket.getaddrinfo = _socket.getaddrinfo, getaddrinfo
    if ip != "127.0.0.1":  # there, a server of the program's own may listen
        for name in "connect", "connect_ex":
            setattr(socket.socket, name, mapping(getattr(socket.socket, name)))


def install(env=os.environ):
    import socket
    if hasattr(socket, "quotactl_meter") or sys.version_info < (3,):
        return  # another meter's hook was here first, and read the same variables
    socket.quotactl_meter = True
    if env.get("QUOTACTL_METER_DIRECT"):
        ip, _, listener = env["QUOTACTL_METER_DIRECT"].rpartition(":")
        redirect(socket, env["QUOTACTL_METER_HOSTS"].split(","), int(env["QUOTACTL_METER_UID"]), ip, int(listener))
    import ssl
    trust(ssl, env["QUOTACTL_METER_CA"])


here, ours = os.path.dirname(os.path.abspath(__file__)), sys.modules.pop(__name__, None)
sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
try:
    import sitecustomize  # noqa: F401  the one that Python would have found
except ImportError as error:
    sys.modules[__name__] = ours
    if getattr(error, "name", __name__) != __name__:
        raise
finally:
    try:
        install()
    except Exception:
        pass
