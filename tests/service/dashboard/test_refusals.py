"""What is refused: forms from elsewhere, pages of other owners, scripts and styles that are not our own."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import select

from privest_service.jobs.models import Job
from privest_service.notices.models import Delivery
from testing.history import signing_key
from testing.scenes import (
    Desk,
    Hospital,
    Markup,
    admin_pages,
    all_pages,
    analyst_called,
    analyst_pages,
    answered,
    books,
    dataset_called,
    everything,
    owner_called,
    routes,
)
from testing.server import ADMIN_KEY, Caller, Server, csv_of, spd, until

POLICY = {
    "default-src": {"'none'"},
    "style-src": {"'self'"},
    "script-src": {"'self'"},
    "img-src": {"'self'"},
    "connect-src": {"'self'"},
    "form-action": {"'self'"},
    "base-uri": {"'none'"},
    "frame-ancestors": {"'none'"},
}


@dataclass(frozen=True)
class _Form:
    """A form as an owner, or the administrator, would send it.

    Attributes:
        path: with places to fill in.
        fields: of it, likewise.
        file: whether it comes with one.
        role: whose form it is: an owner's, the administrator's, or that of the analyst who asks.
    """

    path: str
    fields: dict[str, str] = field(default_factory=dict)
    file: bool = False
    role: str = "owner"


FORMS = {
    "/sign-out": _Form("/sign-out"),
    "/freeze": _Form("/freeze", {"frozen": "yes"}),
    "/analysts": _Form(
        "/analysts", {"analyst": "{other_analyst}", "dataset": "{dataset}", "epsilon": "1", "delta": "1e-5"}
    ),
    "/analysts/revoke": _Form("/analysts/revoke", {"analyst": "{analyst}", "dataset": "{dataset}"}),
    "/datasets/new": _Form(
        "/datasets/new", {"kind": "points", "manifold": "spd", "dim": "2", "name": "Planted"}, file=True
    ),
    "/questions/{job_id}": _Form("/questions/{request}", {"decision": "approve", "sure": "yes"}),
    "/datasets/{dataset_id}/delete": _Form("/datasets/{dataset}/delete", {"name": "Xylophone rows"}),
    "/ledger/verify": _Form("/ledger/verify"),
    "/what-if": _Form("/what-if", {"question": "dataset={dataset}&epsilon=0.1", "key": "a key"}),
    "/budget": _Form("/budget", {"epsilon": "9", "delta": "1e-5", "sure": "yes"}),
    "/budget/renew": _Form("/budget/renew", {"replaces": "1", "sure": "yes"}),
    "/budget/rules": _Form("/budget/rules", {"every": "month", "promise": "per-window"}),
    "/budget/pace": _Form("/budget/pace", {"pace": "25"}),
    "/notices": _Form("/notices", {"kind": "file", "name": "planted", "events": "budget.spent"}),
    "/notices/test": _Form("/notices/test", {"channel": "{channel}"}),
    "/notices/remove": _Form("/notices/remove", {"channel": "{channel}"}),
    "/answers/{job_id}/withdraw": _Form("/answers/{request}/withdraw", role="analyst"),
    "/published": _Form("/published", {"name": "anew", "job": "{job}"}),
    "/published/withdraw": _Form("/published/withdraw", {"name": "{published}"}),
    "/keys": _Form("/keys", {"scopes": "read"}),
    "/keys/revoke": _Form("/keys/revoke", {"key": "{key}"}),
    "/admin/owners/{owner_id}/freeze": _Form("/admin/owners/{owner}/freeze", {"frozen": "yes"}, role="admin"),
    "/admin/owners": _Form("/admin/owners", {"name": "Made", "epsilon": "1", "delta": "1e-6"}, role="admin"),
    "/admin/analysts": _Form("/admin/analysts", {"name": "Made"}, role="admin"),
    "/admin/{holders}/{holder_id}/keys": _Form(
        "/admin/owners/{owner}/keys", {"scopes": "data"}, role="admin"
    ),
    "/admin/{holders}/{holder_id}/keys/revoke": _Form(
        "/admin/owners/{owner}/keys/revoke", {"key": "{key}"}, role="admin"
    ),
}
"""All forms by route but the sign-in, which needs no session."""


@dataclass(frozen=True)
class _Target:
    """An owner with something to lose."""

    owner: Caller
    asking: Caller
    places: dict[str, str]

    def send(self, desk: Desk, form: _Form, **how: object) -> httpx.Response:
        """Send a form about what is this owner's."""
        fields = {name: value.format(**self.places) for name, value in form.fields.items()}
        files = {"file": ("rows.csv", csv_of(spd(9, 2)))} if form.file else None
        return desk.post(form.path.format(**self.places), fields, files=files, **how)  # pyright: ignore


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[str], str]) -> Iterator[Server]:
    """A service of these tests alone: they compare all rows, and work that others left changes some."""
    directory = tmp_path_factory.mktemp("apart")
    notices = directory / "notices"
    notices.mkdir()
    server = Server(
        directory, new_database("sqlite"), signing_key_file=signing_key(directory), notice_dir=notices
    )
    try:
        yield server
    finally:
        server.stop()


def _target(apart: Server) -> _Target:
    owner, analyst = owner_called(apart, "Zebedee Trust"), analyst_called(apart, "Quillon Vane")
    dataset = dataset_called(owner, "Xylophone rows")
    assert owner.grant(dataset, analyst).status_code == 200
    asking = apart.analyst()
    assert owner.grant(dataset, asking, approval="required").status_code == 200
    quiet = {"kind": "file", "name": "quiet", "events": ["budget.renewed"]}
    channel = owner.post(f"/v1/owners/{owner.id}/channels", json=quiet).json()
    job = answered(owner, dataset)
    published = f"p_{job.removeprefix('job_')}"
    assert owner.put(f"/v1/published/{published}", json={"job": job}).status_code == 200
    return _Target(
        owner,
        asking,
        {
            "owner": owner.id,
            "dataset": dataset,
            "analyst": analyst.id,
            "other_analyst": apart.analyst().id,
            "job": job,
            "published": published,
            "theirs": answered(analyst, dataset),
            "request": asking.estimate(dataset, epsilon=0.1, delta=1e-6).json()["id"],
            "key": owner.post(f"/v1/owners/{owner.id}/keys", json={"scopes": ["read"]}).json()["id"],
            "channel": channel["id"],
            "seq": "3",
        },
    )


@pytest.fixture
def target(apart: Server) -> _Target:
    return _target(apart)


@pytest.fixture(scope="module")
def standing(apart: Server) -> _Target:
    """One from which nothing is taken: as nobody may, tests can share it."""
    target = _target(apart)
    until(lambda: not _under_way(apart))
    return target


def _desk(target: _Target, form: _Form) -> Desk:
    keys = {"admin": ADMIN_KEY, "owner": target.owner.key, "analyst": target.asking.key}
    return Desk(target.owner.server, keys[form.role])


def test_every_form_is_among_those_that_are_tried_below() -> None:
    assert routes("POST") == {*FORMS, "/sign-in"}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_counts_only_in_a_session_and_with_its_own_token(target: _Target, name: str) -> None:
    form, server = FORMS[name], target.owner.server
    desk, other = _desk(target, form), _desk(target, form)
    until(lambda: not _under_way(server))
    token, before = desk.token, everything(server)
    tries: dict[str, dict[str, object]] = {
        "none": {"token": None},
        "wrong": {"token": "0" * 64},
        "of another session": {"token": other.token},
        "not ASCII": {"token": "ключ"},
        "from another site": {"token": token, "headers": {"Sec-Fetch-Site": "cross-site"}},
        "from a neighbour": {"token": token, "headers": {"Sec-Fetch-Site": "same-site"}},
    }
    for told, how in tries.items():
        assert target.send(desk, form, **how).status_code == 403, told
    other.forget()
    answer = target.send(other, form, token=token)  # without a session, which leads to the sign-in
    assert answer.status_code == 303
    assert urlsplit(answer.headers["location"]).path == "/dashboard/sign-in"
    assert everything(server) == before
    # It is the token alone that was missing:
    assert target.send(desk, form, token=token).status_code in (200, 303)
    assert everything(server) != before
    until(lambda: not _under_way(server))  # else a later test sees how the question goes on


def _under_way(server: Server) -> list[object]:
    """Questions that are not answered yet, and notices that have not arrived."""
    questions = select(Job.id).where(Job.state.in_(("reserved", "claimed")))
    with books(server) as database, database.read() as session:
        return [*session.scalars(questions), *session.scalars(select(Delivery.id))]


PAGES_FOR = {
    "data": {"GET /datasets/new", "POST /datasets/new", "POST /datasets/{dataset_id}/delete"},
    "manage": {
        "POST /freeze",
        "POST /analysts",
        "POST /analysts/revoke",
        "POST /questions/{job_id}",
        "POST /budget",
        "POST /budget/renew",
        "POST /budget/rules",
        "POST /budget/pace",
        "POST /notices",
        "POST /notices/test",
        "POST /notices/remove",
        "POST /published",
        "POST /published/withdraw",
        "POST /keys",
        "POST /keys/revoke",
    },
    "estimate": {"POST /what-if", "POST /answers/{job_id}/withdraw"},
}
"""Routes that keys of one scope may use; all other pages are for reading."""


def test_every_page_asks_for_what_it_does(target: _Target) -> None:
    owner, open_to_all = target.owner, {"GET /sign-in", "POST /sign-in", "POST /sign-out"}
    pages = {f"{method} {path}" for method in ("GET", "POST") for path in routes(method)}
    pages = {each for each in pages if "/admin" not in each} - open_to_all
    reading = pages - set[str]().union(*PAGES_FOR.values())
    for scope, its in {"read": reading, **PAGES_FOR}.items():
        made = owner.post(f"/v1/owners/{owner.id}/keys", json={"scopes": [scope]}).json()
        desk = Desk(owner.server, made["key"])
        token = desk.token
        for page in pages:
            method, _, path = page.partition(" ")
            path = re.sub(r"\{\w+\}", "1", path)
            if path == "/events":
                continue  # a stream, which is of the overview
            answer = desk.get(path) if method == "GET" else desk.post(path, token=token)
            lacks = re.search(r"with the scope (\w+)", answer.text)
            assert (answer.status_code == 403 and lacks is not None) == (page not in its), (scope, page)
        assert desk.post("/sign-out", token=token).headers["location"] == "/dashboard/sign-in"


def test_nobody_is_signed_in_from_another_site(apart: Server) -> None:
    owner = owner_called(apart, "Elsewhere")
    before = everything(apart)
    answer = httpx.post(
        f"{apart.url}/dashboard/sign-in", data={"key": owner.key}, headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert everything(apart) == before


def test_an_empty_cookie_or_one_of_another_kind_opens_nothing(standing: _Target) -> None:
    for value in ("", "x", standing.owner.key, standing.owner.id, "0" * 64):
        answer = httpx.get(
            f"{standing.owner.server.url}/dashboard/ledger", headers={"Cookie": f"privest-session={value}"}
        )
        assert answer.status_code == 303


# Other owners

NAMES = ("Zebedee", "Quillon", "Xylophone")
"""Names that no page may show to other owners."""

ELSEWHERE = {
    "/datasets/{dataset}": 404,
    "/datasets/{dataset}/delete": 404,
    "/answers/{job}": 404,
    "/answers/{theirs}": 404,
    "/questions/{request}": 404,
    "/questions": 200,
    "/answers?before={job}": 200,
    "/ledger?dataset={dataset}": 200,
    "/ledger?analyst={analyst}": 200,
    "/ledger?analyst={owner}": 200,
    "/ledger?text={job}": 200,
    "/ledger?text=Xylophone": 200,
    "/ledger?text=Quillon": 200,
    "/ledger/{seq}": 404,
    "/what-if?dataset={dataset}": 200,
    "/granted/{dataset}": 403,
    "/budget": 200,
    "/notices": 200,
    "/acts": 200,
    "/acts?text=Xylophone": 200,
    "/published": 200,
    "/keys": 200,
    "/keys?before={key}": 422,
    "/admin/owners/{owner}": 403,
    "/admin/analysts/{analyst}": 403,
    "/analysts?dataset={dataset}": 200,
    "/datasets": 200,
    "/ledger/export": 200,
    "/report": 200,
    "/report?format=csv": 200,
    "/admin/owners/{owner}/report": 403,
    "": 200,
    "/admin": 403,
    "/admin?frozen=true": 403,
}


def test_the_pages_of_one_owner_show_nothing_of_another(apart: Server, standing: _Target) -> None:
    stranger = owner_called(apart, "Stranger")
    own = dataset_called(stranger, "Own rows")
    desk, hidden = Desk(apart, stranger.key), {*NAMES, *standing.places.values()} - {standing.places["seq"]}
    for path, status in ELSEWHERE.items():
        answer = desk.get(path.format(**standing.places), follow_redirects=True)
        assert answer.status_code == status, path
        told = answer.text
        asked = re.split(r"[/?=&]", path.format(**standing.places))
        for part in asked:  # which may be said again
            told = told.replace(part, "") if part in hidden else told
        assert not [each for each in hidden if each in told], path
    assert own in desk.get("/datasets").text


def test_every_page_with_a_place_in_its_path_is_tried_above() -> None:
    def pattern(path: str) -> str:
        return re.sub(r"\{\w+\}|(?<=/admin/)(owners|analysts)(?=/)", "*", path.partition("?")[0])

    assert {pattern(path) for path in routes("GET") if "{" in path} <= {pattern(path) for path in ELSEWHERE}


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("/datasets/{dataset_id}/delete", 404),
        ("/analysts", 404),
        ("/analysts/revoke", 404),
        ("/questions/{job_id}", 404),
        ("/answers/{job_id}/withdraw", 404),
        ("/published", 404),
        ("/notices/test", 404),
        ("/notices/remove", 404),
        ("/what-if", 404),
        ("/keys/revoke", 404),
        ("/admin/owners/{owner_id}/freeze", 403),
        ("/admin/owners", 403),
        ("/admin/analysts", 403),
        ("/admin/{holders}/{holder_id}/keys", 403),
        ("/admin/{holders}/{holder_id}/keys/revoke", 403),
    ],
)
def test_the_forms_of_one_owner_change_nothing_of_another(
    apart: Server, standing: _Target, name: str, status: int
) -> None:
    desk = Desk(apart, owner_called(apart, "Stranger").key)
    token, before = desk.token, everything(apart)
    answer = standing.send(desk, FORMS[name], token=token)
    assert answer.status_code == status
    assert not [name for name in NAMES if name in answer.text]
    assert everything(apart) == before


def test_answers_to_analysts_are_not_the_owners(anna: Hospital, standing: _Target) -> None:
    desk = Desk(standing.owner.server, standing.owner.key)
    assert desk.get(f"/answers/{standing.places['job']}").status_code == 200
    assert desk.get(f"/answers/{standing.places['theirs']}").status_code == 404
    assert standing.places["theirs"] not in desk.get("/answers").text


def test_the_administrator_sees_no_page_of_owners(apart: Server, standing: _Target) -> None:
    desk = Desk(apart, ADMIN_KEY)
    own = {"", "/", "/sign-in", "/glossary", "/acts"} | {
        path for path in routes("GET") if path.startswith("/admin")
    }
    places = {
        "dataset_id": standing.places["dataset"],
        "job_id": standing.places["job"],
        "seq": "1",
    }
    tried = [path.format(**places) for path in routes("GET") - own]
    assert len(tried) > 8
    for path in tried:
        answer = desk.get(path)
        assert answer.status_code == 403, path
        assert not [name for name in NAMES if name in answer.text], path
    before, token = everything(apart), desk.token
    for name, form in FORMS.items():
        if form.role == "owner" and name != "/sign-out":
            assert standing.send(desk, form, token=token).status_code == 403, name
    assert everything(apart) == before


# Headers


def _policy(answer: httpx.Response) -> dict[str, set[str]]:
    parts = [part.split() for part in answer.headers["content-security-policy"].split(";")]
    return {name: set(sources) for name, *sources in parts}


def test_no_page_runs_or_loads_what_is_not_its_own(anna: Hospital) -> None:
    desk = Desk(anna.server, anna.owner.key)
    answers = [(path, status, desk.get(path)) for path, status in all_pages(anna)]
    admin, analyst = Desk(anna.server, ADMIN_KEY), Desk(anna.server, anna.analysts[0].key)
    answers += [(path, 200, admin.get(path)) for path in admin_pages(anna)]
    answers += [(path, 200, analyst.get(path)) for path in analyst_pages(anna)]
    answers.append(("verified", 200, desk.post("/ledger/verify")))
    for path, status, answer in answers:
        assert answer.status_code == status, path
        assert answer.headers["content-type"] == "text/html; charset=utf-8", path
        assert _policy(answer) == POLICY, path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert answer.headers["cache-control"] == "no-store", path
        assert answer.headers["referrer-policy"] == "same-origin", path
        page = Markup(answer.text)
        assert page.inline == [], path
        for tag, given in page.elements:
            assert tag not in ("style", "iframe", "object", "embed", "base"), path
            assert tag != "script" or given.get("src", "").startswith("/dashboard/static/"), path  # pyright: ignore
            assert not [name for name in given if name == "style" or name.startswith("on")], (path, tag)
            for name in ("src", "href", "action"):
                assert (given.get(name) or "/").startswith(("/", "#")), (path, tag, given)
                assert not (given.get(name) or "").startswith("//"), (path, tag, given)


def test_static_files_are_kept_for_good_and_change_their_address(anna: Hospital) -> None:
    page = Markup(Desk(anna.server, anna.owner.key).get("").text)
    files = {
        link
        for tag, given in page.elements
        if tag in ("link", "script", "img")
        for link in (given.get("src"), given.get("href"))
        if link
    }
    assert len(files) >= 4
    for file in files:
        assert re.search(r"\?v=[0-9a-f]{12}$", file)
        answer = httpx.get(anna.server.url + file)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_interface_knows_no_sessions(standing: _Target) -> None:
    desk = Desk(standing.owner.server, standing.owner.key)
    cookie = {"Cookie": f"privest-session={desk.cookie}"}
    for method, path in (("GET", "/v1/datasets"), ("DELETE", f"/v1/datasets/{standing.places['dataset']}")):
        answer = httpx.request(method, standing.owner.server.url + path, headers=cookie)
        assert answer.status_code == 401, "a browser sends cookies unasked: they must not open it"
