"""`/v1/files`: contexts that are uploaded once and named by their id."""

import asyncio
from collections.abc import AsyncGenerator

from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from rlm.server.bodies import limited
from rlm.server.errors import ApiError, bad_request, not_found
from rlm.server.files import Incoming, StoredFile
from rlm.server.replies import PURPOSES, Deleted, FileList, FileObject
from rlm.server.service import Service
from rlm.server.web import page_of, who
from rlm.web.responses import json_response

__all__ = ["FileRoutes"]

MULTIPART_OVERHEAD_BYTES = 1 << 20
MOST_FIELDS = 16
SLOWER = 10
"""Files may take so many times longer to arrive than other bodies."""


class FileRoutes:
    """One method an address."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.settings

    async def upload(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "multipart/form-data":
            raise ApiError(
                415,
                "a file is uploaded as multipart/form-data, with the fields file and purpose",
                code="unsupported_media_type",
            )
        async with self._service.files.incoming(who(request)) as incoming:
            name, purpose = await self._received(request, incoming)
            days = self._settings.file_days
            kept = await asyncio.to_thread(incoming.keep, name, purpose, days)
        return json_response(_file(kept))

    async def _received(self, request: Request, incoming: Incoming) -> tuple[str, str]:
        """The name and the purpose of a file whose bytes have been written."""
        most = self._settings.max_file_bytes + MULTIPART_OVERHEAD_BYTES
        chunks = limited(request, most, self._settings.body_seconds * SLOWER)
        try:
            form = await _Form(request.headers, chunks, incoming).parse()
        except (MultiPartException, ValueError, KeyError) as error:
            raise bad_request(f"the form can't be read: {error}", code="invalid_form") from None
        file, purpose = form.get("file"), form.get("purpose")
        if file is None or isinstance(file, str):
            raise bad_request("the form has no file", "file")
        if not isinstance(purpose, str) or purpose not in PURPOSES:
            raise bad_request(f"purpose must be one of {', '.join(PURPOSES)}", "purpose")
        return file.filename or "file", purpose

    async def listed(self, request: Request) -> Response:
        most, after = page_of(request)
        kept = self._service.files.listed(who(request))
        if purpose := request.query_params.get("purpose"):
            kept = [each for each in kept if each.purpose == purpose]
        ids = [each.id for each in kept]
        if after is not None and after not in ids:
            raise not_found("there is no such file to go on from", "after", "file_not_found")
        start = 0 if after is None else ids.index(after) + 1
        page = [_file(each) for each in kept[start : start + most]]
        return json_response(
            FileList(
                data=page,
                has_more=start + most < len(kept),
                first_id=page[0].id if page else None,
                last_id=page[-1].id if page else None,
            )
        )

    async def file(self, request: Request) -> Response:
        return json_response(
            _file(self._service.files.get(who(request), request.path_params["file_id"]))
        )

    async def content(self, request: Request) -> Response:
        path = self._service.files.data_of(who(request), request.path_params["file_id"])
        return FileResponse(path, media_type="application/octet-stream")

    async def delete(self, request: Request) -> Response:
        identity = request.path_params["file_id"]
        self._service.files.delete(who(request), identity)
        return json_response(Deleted(id=identity, object="file"))


def _file(kept: StoredFile) -> FileObject:
    return FileObject(
        id=kept.id,
        bytes=kept.bytes,
        created_at=kept.created_at,
        filename=kept.filename,
        purpose=kept.purpose,
        expires_at=kept.expires_at,
    )


class _Form(MultiPartParser):
    """A form whose one file is written where it stays, and counted before that."""

    def __init__(
        self, headers: Headers, chunks: AsyncGenerator[bytes, None], incoming: Incoming
    ) -> None:
        super().__init__(headers, chunks, max_files=1, max_fields=MOST_FIELDS)
        self._incoming = incoming

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        if (file := self._current_part.file) is not None:
            file.file.close()
            file.file = self._incoming.file

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._current_part.file is not None:
            self._incoming.expect(end - start)
        super().on_part_data(data, start, end)
