"""redis-py from PyPI against the server at the socket in the first argument."""

import sys

# The directory of this file has a file with the name of the client's package.
sys.path.pop(0)

import redis  # noqa: E402

SOCKET = sys.argv[1]


def connect(protocol, **options):
    return redis.Redis(unix_socket_path=SOCKET, protocol=protocol, decode_responses=True, **options)


def check(protocol):
    client = connect(protocol, client_name="tester")
    assert client.ping()
    assert client.client_getname() == "tester"
    assert client.client_id() > 0
    assert client.echo("hello") == "hello"

    assert client.set("a", "1") is True
    assert client.get("a") == "1"
    assert client.get("missing") is None
    assert client.mset({"b": "2", "c": "3"}) is True

    with client.pipeline(transaction=False) as pipe:
        for number in range(1000):
            pipe.set(f"key:{number}", number)
        assert pipe.execute() == [True] * 1000

    with client.pipeline(transaction=True) as pipe:
        pipe.set("a", "5").get("a").get("key:999")
        assert pipe.execute() == [True, "5", "999"]

    with client.pipeline() as pipe:
        pipe.watch("a")
        assert pipe.get("a") == "5"
        connect(protocol).set("a", "6")
        pipe.multi()
        pipe.set("a", "7")
        try:
            pipe.execute()
            raise AssertionError("the watched key has changed")
        except redis.WatchError:
            pass
    assert client.get("a") == "6"

    def double(pipe):
        value = int(pipe.get("a"))
        pipe.multi()
        pipe.set("a", value * 2)

    client.transaction(double, "a")
    assert client.get("a") == "12"

    known = {command["name"] if isinstance(command, dict) else command for command in client.command()}
    if "scan" in known:
        assert len(set(client.scan_iter("key:*", count=100))) == 1000

    info = client.info()
    assert info["redis_version"] == "7.0.15"
    assert info["db0"]["keys"] >= 1003, info["db0"]
    assert client.info("pando")["guarantee"].startswith("what has returned")
    assert client.config_get("maxclients") == {"maxclients": "10000"}
    assert client.config_set("timeout", 0)
    assert client.slowlog_reset()
    assert isinstance(client.slowlog_get(), list)
    assert client.dbsize() >= 1003
    assert any(one["name"] == "tester" for one in client.client_list())
    assert client.client_info()["resp"] in ("2", "3", 2, 3)
    assert client.memory_usage("a") > 0
    assert client.command_count() == len(client.command())
    assert client.command_getkeys("MSET", "a", "1", "b", "2") == ["a", "b"]
    assert client.wait(0, 10) == 0

    assert client.acl_whoami() == "default"
    assert client.acl_setuser(
        "ann", enabled=True, passwords=["+pw"], commands=["+get"], keys=["a*"]
    )
    user = client.acl_getuser("ann")
    assert "on" in user["flags"], user
    ann = connect(protocol, username="ann", password="pw")
    assert ann.get("a") == "12"
    for forbidden in (lambda: ann.get("b"), lambda: ann.set("a", "1")):
        try:
            forbidden()
            raise AssertionError("it is not allowed")
        except redis.exceptions.NoPermissionError:
            pass
    try:
        connect(protocol, username="ann", password="wrong").ping()
        raise AssertionError("the password is wrong")
    except redis.exceptions.AuthenticationError:
        pass
    assert client.acl_deluser("ann") == 1

    try:
        client.execute_command("NOSUCH", "a")
        raise AssertionError("there is no such command")
    except redis.exceptions.ResponseError as error:
        assert "unknown command 'NOSUCH'" in str(error), error

    other = connect(protocol)
    other.ping()
    address = other.client_info()["id"]
    assert client.client_kill_filter(_id=address) == 1
    assert client.flushall()


for version in (2, 3):
    check(version)
print("all is well")
