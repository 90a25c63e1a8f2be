"""The page of published answers: what an owner sees of its data, and an analyst of what it may read."""

from collections.abc import Callable

from testing.browser import Visitor
from testing.scenes import Desk, analyst_called, answered, dataset_called, owner_called
from testing.server import Server


def test_an_owner_sees_who_reads_what_and_withdraws_it(site: Server, visit: Callable[..., Visitor]) -> None:
    owner, ada, reader = (
        owner_called(site, "Clinic"),
        analyst_called(site, "Ada"),
        analyst_called(site, "Dashboards"),
    )
    dataset = dataset_called(owner, "Patients")
    assert owner.grant(dataset, ada, publish="allowed").status_code == 200
    body = {"job": answered(ada, dataset), "readers": [reader.id], "sql": True}
    for name in ("mean_of_patients", "second_table"):
        assert ada.put(f"/v1/published/{name}", json=body).status_code == 200
    visitor = visit(site)
    visitor.sign_in(owner.key)
    visitor.page.get_by_role("link", name="Analysts", exact=True).click()
    visitor.page.get_by_role("link", name="published answers").click()
    table = visitor.page.get_by_role("region", name="Published answers")
    row = table.get_by_role("row").filter(has_text="mean_of_patients")
    for told in ("Patients", "Ada", "Dashboards", "reading role", "ε 0.2"):
        assert told in row.inner_text(), told
    visitor.check_accessibility()
    visitor.picture("published")
    row.get_by_text("Withdraw", exact=True).click()
    row.get_by_label("Reason").fill("too early")
    row.get_by_role("button", name="Withdraw it").click()
    assert "mean_of_patients" not in visitor.page.get_by_role("region", name="Published answers").inner_text()
    (act,) = owner.get("/v1/acts", params={"kind": "answer.withdrawn"}).json()["acts"]
    assert (act["reason"], act["details"]) == ("too early", {"published_as": "mean_of_patients"})
    # A reader is told of neither the data nor the other readers.
    desk = Desk(site, reader.key)
    told = desk.get("/published").text
    assert "second_table" in told
    assert "Withdraw" not in told
    for hidden in ("Patients", "mean_of_patients", owner.id, dataset):
        assert hidden not in told, hidden
    assert desk.post("/published/withdraw", {"name": "second_table"}).status_code == 404
    # Held back, it is told to whom it concerns.
    owner.grant(dataset, ada)
    assert "held back" in Desk(site, ada.key).get("/published").text
    assert "second_table" not in desk.get("/published").text
    # The record of acts says it in names.
    acts = Desk(site, owner.key).get("/acts").text
    for told in ("Answer published", "published as: mean_of_patients", "readers: Dashboards"):
        assert told in acts, told


def test_an_answer_is_published_from_its_page(site: Server) -> None:
    owner, ada, reader = (
        owner_called(site, "Clinic"),
        analyst_called(site, "Ada"),
        analyst_called(site, "Dashboards"),
    )
    dataset = dataset_called(owner, "Patients")
    owner.grant(dataset, ada)
    job, desk = answered(ada, dataset), Desk(site, ada.key)
    form = {"job": job, "name": "patients", "readers": f"{reader.id}, {owner.id}", "reason": "weekly"}
    assert "Publish it" not in desk.get(f"/answers/{job}").text, "the grant does not allow it"
    assert desk.post("/published", form).status_code == 403
    assert owner.grant(dataset, ada, publish="allowed").status_code == 200
    assert "Publish it" in desk.get(f"/answers/{job}").text
    assert desk.post("/published", form).status_code == 303
    told = ada.get("/v1/published/patients").json()
    assert (told["receipt"], told["sql"]) == (job, False)
    assert told["readers"] == sorted([reader.id, owner.id])
    assert reader.get("/v1/published/patients").status_code == 200
    page = desk.get(f"/answers/{job}").text
    assert "published</a> as <code>patients</code>" in page
    (act,) = owner.get("/v1/acts", params={"kind": "answer.published"}).json()["acts"]
    assert act["reason"] == "weekly"
    # What is wrong is said, and nothing is published.
    for wrong in ({"name": "No Name"}, {"readers": "nobody"}, {"job": "job_none"}):
        assert desk.post("/published", form | {"name": "more"} | wrong).status_code in (404, 422), wrong
    assert [each["name"] for each in ada.get("/v1/published").json()["published"]] == ["patients"]
    # The owner publishes its own answer for SQL, and not the analyst's.
    own = answered(owner, dataset)
    assert (
        Desk(site, owner.key).post("/published", {"job": own, "name": "own", "sql": "yes"}).status_code == 303
    )
    assert owner.get("/v1/published/own").json()["sql"] is True
    assert Desk(site, owner.key).post("/published", {"job": job, "name": "theirs"}).status_code == 404
