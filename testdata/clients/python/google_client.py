import io

import google.auth.transport.requests
import google.oauth2.credentials
import googleapiclient.discovery
import googleapiclient.http

import scenarios


def method(http, path, parameters, **more):
    text = {"type": "string", "location": "query"}
    return {"id": path, "httpMethod": http, "path": path, "parameters": {name: text for name in parameters}, **more}


# As much of the description of YouTube's API as the scenarios need.
LIST = {"response": {"$ref": "Page"}}
UPLOAD = {
    "request": {"$ref": "Any"},
    "response": {"$ref": "Any"},
    "supportsMediaUpload": True,
    "mediaUpload": {
        "accept": ["*/*"],
        "protocols": {
            "simple": {"multipart": True, "path": "/upload/youtube/v3/videos"},
            "resumable": {"multipart": True, "path": "/upload/youtube/v3/videos"},
        },
    },
}
DOCUMENT = {
    "name": "youtube",
    "version": "v3",
    "rootUrl": "https://www.googleapis.com/",
    "servicePath": "youtube/v3/",
    "baseUrl": "https://www.googleapis.com/youtube/v3/",
    "schemas": {
        "Any": {"id": "Any", "type": "object"},
        "Page": {"id": "Page", "type": "object", "properties": {"nextPageToken": {"type": "string"}}},
    },
    "resources": {
        "videos": {
            "methods": {
                "list": method("GET", "videos", ["part", "pageToken"], **LIST),
                "insert": method("POST", "videos", ["part"], **UPLOAD),
            }
        }
    },
}


def youtube():
    return googleapiclient.discovery.build_from_document(DOCUMENT, developerKey="an-example")


def videos():
    api = youtube().videos()
    found, request = 0, api.list(part="id")
    while request:
        answer = request.execute()
        found, request = found + len(answer["items"]), api.list_next(request, answer)
    return f"{found} videos"


def insert():
    body = googleapiclient.http.MediaIoBaseUpload(io.BytesIO(bytes(624_288)), "video/mp4", chunksize=262_144, resumable=True)
    request, answer = youtube().videos().insert(part="id", media_body=body), None
    while answer is None:
        _, answer = request.next_chunk()
    return answer["id"]


def refresh():
    """A short-lived token, which the client gets by itself before its first call."""
    account = google.oauth2.credentials.Credentials(
        None, refresh_token="an-example", token_uri="https://oauth2.googleapis.com/token", client_id="a-program", client_secret="an-example"
    )
    session = google.auth.transport.requests.AuthorizedSession(account)
    answer = session.get("https://www.googleapis.com/youtube/v3/videos?part=id&pageToken=3")
    answer.raise_for_status()
    return f"{len(answer.json()['items'])} videos"


def drive():
    """A path of the same host that belongs to no upstream."""
    session = google.auth.transport.requests.requests.Session()
    return session.get("https://www.googleapis.com/drive/v3/about").json()["kind"]


scenarios.run(globals())
