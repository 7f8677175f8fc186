"""Files: uploaded, listed, used as contexts, and private to their token."""

import io
import json
import shutil
from pathlib import Path

import aiohttp

from rlm.testing.scripted import ScriptedClient
from tests.server.serving import Answer, Client, server, submits
from tests.server.test_tokens import ADA, BOB, _as, _token


async def _upload(client: Client, data: bytes, name: str = "notes.txt", **more: str) -> Answer:
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("purpose", "user_data")
    form.add_field("file", io.BytesIO(data), filename=name, content_type="text/plain")
    return await client.ask("POST", "/v1/files", data=form, headers=more)


async def test_a_file_can_be_the_context(tmp_path: Path) -> None:
    model = ScriptedClient(["```repl\nFINAL(context)\n```"])
    async with server(tmp_path, model) as client:
        kept = await _upload(client, b"what is in the file")
        assert kept.status == 200, kept.text
        assert kept.json["object"] == "file"
        assert (kept.json["bytes"], kept.json["filename"]) == (19, "notes.txt")
        answer = await client.chat("repeat", rlm={"file_ids": [kept.json["id"]]})
        assert answer.json["choices"][0]["message"]["content"] == "what is in the file"
        assert not list((tmp_path / "state" / "server" / "laid-out").iterdir())


async def test_several_files_are_a_context_by_name(tmp_path: Path) -> None:
    code = "```repl\nimport json; FINAL(json.dumps(context, sort_keys=True))\n```"
    model = ScriptedClient([code, code])
    async with server(tmp_path, model) as client:
        ids = [
            (await _upload(client, data, name)).json["id"]
            for name, data in (("a.txt", b"one"), ("../../a.txt", b"two"), ("c.md", b"three"))
        ]
        answer = await client.chat("all of it", rlm={"file_ids": ids})
        part = {"type": "file", "file": {"file_id": ids[0]}}
        mixed = await client.chat(
            [{"role": "user", "content": [{"type": "text", "text": "all of it"}, part]}],
            rlm={"context": "given"},
        )
    content = json.loads(answer.json["choices"][0]["message"]["content"])
    assert content == {"a.txt": "one", "a-2.txt": "two", "c.md": "three"}
    content = json.loads(mixed.json["choices"][0]["message"]["content"])
    assert content == {"context": "given", "files": {"a.txt": "one"}}


async def test_a_background_run_keeps_its_file(tmp_path: Path) -> None:
    model = ScriptedClient(["```repl\nFINAL(context)\n```"], delay_seconds=0.2)
    async with server(tmp_path, model) as client:
        identity = (await _upload(client, b"kept")).json["id"]
        created = await client.run(query="repeat", file_ids=[identity])
        assert (await client.ask("DELETE", f"/v1/files/{identity}")).json["deleted"] is True
        async with client.stream(f"/v1/runs/{created.json['id']}/events") as events:
            told = [event async for event in events if "data" in event]
    assert json.loads(told[-1]["data"])["answer"] == "kept"
    assert str(tmp_path) not in "".join(event["data"] for event in told)


async def test_files_are_listed_read_and_deleted(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        identity = (await _upload(client, b"\x00binary\xff", "data.bin")).json["id"]
        assert (await client.get(f"/v1/files/{identity}")).json["id"] == identity
        listed = await client.get("/v1/files?limit=1")
        assert [each["id"] for each in listed.json["data"]] == [identity]
        async with client.session.get(f"{client.base}/v1/files/{identity}/content") as response:
            assert await response.read() == b"\x00binary\xff"
            assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert (await client.ask("DELETE", f"/v1/files/{identity}")).status == 200
        for path in ("", "/content"):
            assert (await client.get(f"/v1/files/{identity}{path}")).status == 404
        assert (await client.get("/v1/files/..%2f..%2fledger.sqlite")).status == 404


async def test_files_of_other_tokens_do_not_exist(tmp_path: Path) -> None:
    tokens = [_token("ada", ADA), _token("bob", BOB)]
    async with server(tmp_path, ScriptedClient([submits("x")]), tokens=tokens) as client:
        identity = (await _upload(client, b"hers", **_as(ADA))).json["id"]
        assert (await client.get("/v1/files", headers=_as(BOB))).json["data"] == []
        assert (await client.get(f"/v1/files/{identity}", headers=_as(BOB))).status == 404
        answer = await client.ask("DELETE", f"/v1/files/{identity}", headers=_as(BOB))
        assert answer.status == 404
        rlm = {"file_ids": [identity]}
        assert (await client.chat("read it", rlm=rlm, headers=_as(BOB))).status == 404


async def test_the_size_of_files_is_limited(tmp_path: Path) -> None:
    async with server(tmp_path, max_file_bytes=1_000, max_files_bytes=1_500) as client:
        assert (await _upload(client, b"x" * 1_000)).status == 200
        assert (await _upload(client, b"x" * 1_001)).status == 413
        assert (await _upload(client, b"x" * 501)).status == 413
        assert (await _upload(client, b"x" * 3_000_000)).status == 413
        assert (await _upload(client, b"x" * 500)).status == 200
        assert len((await client.get("/v1/files")).json["data"]) == 2
    async with server(tmp_path, file_days=-1.0) as client:
        identity = (await _upload(client, b"old")).json["id"]
        assert (await client.get(f"/v1/files/{identity}")).status == 404


async def test_invalid_forms_are_refused(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        assert (await client.post("/v1/files", {"file": "x"})).status == 415
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        for data in (b"", b"--x--\r\n", b"garbage", b"--x\r\n\r\nno headers\r\n--x--\r\n"):
            answer = await client.ask("POST", "/v1/files", data=data, headers=headers)
            assert answer.status == 400, data
        headers = {"Content-Type": "multipart/form-data"}
        answer = await client.ask("POST", "/v1/files", data=b"x", headers=headers)
        assert answer.status == 400


async def test_a_codec_that_a_client_names_is_not_used(tmp_path: Path) -> None:
    """Decoding punycode, for one, takes quadratic time."""
    field = b"Content-Disposition: form-data; name="
    form = (
        b"--x\r\n" + field + b'"purpose"\r\n\r\nuser_data\r\n'
        b"--x\r\n" + field + b'"file"; filename="a-b.txt"\r\n\r\ntext\r\n--x--\r\n'
    )
    headers = {"Content-Type": "multipart/form-data; boundary=x; charset=punycode"}
    async with server(tmp_path) as client:
        kept = await client.ask("POST", "/v1/files", data=form, headers=headers)
        assert (kept.status, kept.json["filename"]) == (200, "a-b.txt"), kept.text
        long = form.replace(b"user_data", b"u" * 20_000)
        refused = await client.ask("POST", "/v1/files", data=long, headers=headers)
    assert refused.status == 400
    assert "maximum size" in refused.json["error"]["message"]


async def test_listing_files_reads_none_of_them(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        ids = [(await _upload(client, b"x")).json["id"] for _ in range(3)]
    async with server(tmp_path) as client:  # It reads them once, when it starts.
        for about in (tmp_path / "state").rglob("about.json"):
            about.write_text("damaged")
        page = await client.get("/v1/files?limit=2")
        rest = await client.get(f"/v1/files?after={page.json['last_id']}")
        assert sorted(each["id"] for each in page.json["data"] + rest.json["data"]) == sorted(ids)
        assert (await client.ask("DELETE", f"/v1/files/{ids[0]}")).status == 200
        assert len((await client.get("/v1/files")).json["data"]) == 2


async def test_a_file_that_is_gone_from_the_disk_is_not_there(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        kept = (await _upload(client, b"x")).json["id"]
        (folder,) = (tmp_path / "state").rglob(kept)
        shutil.rmtree(folder)
        for path in (f"/v1/files/{kept}", f"/v1/files/{kept}/content"):
            assert (await client.get(path)).status == 404
        refused = await client.run(query="q", file_ids=[kept])
    assert (refused.status, refused.json["error"]["code"]) == (404, "file_not_found")
