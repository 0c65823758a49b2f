"""The benchmark: its arithmetic, its page, and that sections run."""

import importlib
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command_line import called

import dalembert as da
from dalembert.lab.bench import report, size_c, size_report, yardstick
from dalembert.lab.bench.naive import dla_half, leapfrog
from dalembert.lab.bench.peers import contest, fastest, least_lead
from dalembert.lab.bench.report import claims, where_peers_win
from dalembert.lab.bench.running import SECTIONS, chosen, run
from dalembert.lab.bench.size import CHAINS, exponent, methods_of
from dalembert.lab.bench.size_peers import by_us, index_reduced, start
from dalembert.lab.bench.solvers import cvt, sleigh
from dalembert.lab.bench.tables import Section, Settings, Table, compared, interleaved, markdown, summary
from dalembert.methods import LieGNI, method_from_text
from dalembert.methods.cli_names import METHODS
from dalembert.model import acceleration


def test_calls_are_interleaved_and_slow_ones_are_not_repeated():
    order = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    times = interleaved(calls, 3)
    assert order == ["a", "b"] * 4
    assert [len(x) for x in times.values()] == [3, 3]
    assert [len(x) for x in interleaved(calls, 3, patience=-1.0, warm=False).values()] == [1, 1]


def test_summaries():
    assert summary([1.0, 3.0, 2.0]) == {"median": 2.0, "min": 1.0, "spread": 1.0}
    row = compared([2.0, 2.0], [1.0, 1.0], 0.5)
    assert (row["ours"], row["theirs"], row["ratio"]) == (4.0, 2.0, 2.0)


@pytest.mark.parametrize("problem", [cvt(1.0), sleigh(1.0)], ids=lambda p: p.name)
def test_reduced_equations_are_the_systems(problem):
    """The ODE given to other solvers moves as the library's own equations of motion say."""
    y = problem.y0 + np.array([0.1, 0.2, 0.7, 0.3, 0.4])
    rate = np.array(problem.field(y, np.sin, np.cos))
    q, v = np.split(problem.states(y), 2)
    np.testing.assert_allclose(np.asarray(problem.system.constraints(q)) @ v, 0, atol=1e-14)
    states = (problem.states(y + 1e-6 * rate) - problem.states(y - 1e-6 * rate)) / 2e-6
    expected = np.concatenate([v, acceleration(problem.system, jnp.asarray(q), jnp.asarray(v))[0]])
    np.testing.assert_allclose(states, expected, atol=1e-8)
    np.testing.assert_allclose(
        problem.states(problem.y0), np.concatenate([problem.q0, problem.v0]), atol=1e-15
    )


def test_hand_written_c_computes_the_same():
    """The calls that the sections c and ensemble time return the same states."""
    library = yardstick.builder().library()
    if library is None:
        pytest.skip(yardstick.NO_GCC)
    system, method = da.zoo.PendulumCVT(eps=0.5), da.LeapFrog()
    start, parameters = partial(yardstick.c_start, method, system), yardstick.numbers(system)
    q0, v0 = (np.asarray(x, float) for x in system.start())
    ours = yardstick.ours_single(system, method, q0, v0)(50)
    theirs = yardstick.c_single(library.cvt_leapfrog, np.array(start(q0, v0)), parameters, len(q0))(50)
    # Rounding of fifty steps of a motion of size ten.
    np.testing.assert_allclose(ours, theirs, atol=1e-11)
    q, v = yardstick.members(system)
    states = np.ascontiguousarray(np.asarray(jax.jit(jax.vmap(start))(q, v)).T)
    ours = yardstick.ours_many(system, method, q, v)(50)[: len(q0)]
    theirs = yardstick.c_many(library.cvt_leapfrog_many, states, parameters)(50)[: len(q0)]
    np.testing.assert_allclose(ours, theirs, atol=1e-11)


def test_hand_written_c_of_large_systems_computes_the_same():
    """The calls that the section size times: frame in two forms, and leap-frog, with BLAS and LAPACK."""
    build = yardstick.builder()
    library, lapack = build.large_library(), build.lapack()
    if library is None or lapack is None:
        pytest.skip(yardstick.NO_GCC if library is None else size_c.NO_LAPACK)
    for case, _, ours, theirs in (
        size_c.car_pair(library, lapack, 2),
        size_c.lattice_pair(library, lapack, 6),
    ):
        for call in theirs.values():
            assert size_c.agreed(case, ours, call) <= size_c.AGREE
    with pytest.raises(RuntimeError, match="differ by"):
        size_c.agreed(case, ours, lambda steps: ours(steps) + 1e-10)


def test_the_equations_given_to_others_are_the_systems():
    car, q0, v0 = start(3)
    found = index_reduced(car)(0.0, jnp.concatenate([q0, v0]), None)
    expected = np.concatenate([v0, acceleration(car, jnp.asarray(q0), jnp.asarray(v0))[0]])
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=1e-13
    )  # two ways of solving equations of size one
    assert by_us(3, "frame", 4)(1).shape == (12,)


def test_methods_of_chains_are_those_that_take_them():
    found = {chain.name: methods_of(chain) for chain in CHAINS}
    taken, refused = found["Car"]
    assert {"frame", "frame@4", "gni", "edla"} <= set(taken)
    assert "mass matrix" in refused["leapfrog"]
    assert not found["Lattice"][1]
    measured = {type(method_from_text(x)) for taken, _ in found.values() for x in taken}
    native = {type(m) for m in map(method_from_text, METHODS) if m.native}
    assert native - measured == {LieGNI}  # chains are not groups


def test_powers_of_n():
    rows = [{"n": n, "first": 3.0 * n**1.5} for n in (4, 8, 16)]
    assert exponent(rows, "first") == pytest.approx(1.5)
    assert exponent([*rows, {"n": 32, "first": None}], "first") == pytest.approx(1.5)
    assert exponent(rows[:1], "first") is None


def test_what_the_page_says_about_large_systems(tmp_path):
    """Sentences come from the numbers: some bounds hold, some do not, and some cases have no figure."""
    named = [(k, k, "") for k in ("case", "n", "system", "method", "first", "second", "step", "ended")]
    rows = [
        {
            "case": "Car, frame",
            "system": "Car",
            "method": "frame",
            "n": n,
            "first": s,
            "second": 0.2,
            "step": n**2 / 9,
        }
        for n, s in ((4, 1.0), (8, 2.0), (13, 9.0))
    ]
    rows.append({"case": "Car, gni", "system": "Car", "method": "gni", "n": 8, "ended": "not within 9 s"})
    powers = [{"case": "Car, frame", "first_power": 1.8, "step_power": 2.0}]
    c = [{"case": "Car, frame", "n": 43, "ratio": 5.0, "walk": 20.0, "walk_ratio": 30.0}]
    many = [{"case": "an ensemble", "gain": 1.7, "control": 1.9, "decides": True}]
    section = Section("size", "What.", [
        Table("First calls", named, rows),
        Table("Powers", [(k, k, "") for k in powers[0]], powers),
        Table("frame against C", [(k, k, "") for k in c[0]], c),
        Table("Gradient", [("case", "", ""), ("gradient", "", "")], [{"case": "Car", "gradient": 4.0}]),
        Table("Ensemble", [("case", "", ""), ("gain", "", "")], many),
    ])  # fmt: skip
    lines = claims({"size": section})
    (small,) = [x for x in lines if "1 to 4 coordinates" in x]
    assert small.startswith("Holds: ")
    (middle,) = [x for x in lines if "5 to 8 coordinates" in x]
    assert middle.startswith("Holds for 1 of 2")
    assert "`Car, gni, n = 8` (not within 9 s)" in middle
    (large,) = [x for x in lines if "9 to 13 coordinates" in x]
    assert large.startswith("Does not hold")
    assert "`Car, frame, n = 13` with 9 s" in large
    (slower,) = [x for x in lines if "a step of frame" in x]
    assert slower.startswith("Does not hold")
    assert "with 5 times" in slower
    (power,) = [x for x in lines if "the first call grows" in x]
    assert power.startswith("Does not hold")
    assert any(x.startswith("Holds: a gradient of a long run") for x in lines)
    assert any(x.startswith("Holds: an ensemble of chains") for x in lines)
    found = run([], Settings.short(), lambda s: None)
    found["sections"]["size"] = section.to_json()
    (tmp_path / "results.json").write_text(json.dumps(found))
    page, image = report.write(tmp_path / "results.json", tmp_path / "page.md")
    assert image.name == "page-size.png"
    assert image.stat().st_size > 5000
    assert "## Large systems" in page.read_text()
    assert f"]({image.name})" in page.read_text()
    assert not size_report.figure(Section("size", ""), tmp_path / "none.png")


@pytest.mark.parametrize(("plain", "method"), [(leapfrog, da.LeapFrog()), (dla_half, da.DLA(0.5))])
def test_plain_jax_computes_the_same(plain, method):
    system = da.zoo.PendulumCVT(eps=0.5)
    q0, v0 = (jnp.asarray(x, float) for x in system.start())
    q, v = jax.jit(lambda q, v: plain(system, q, v, jnp.asarray(0.1), 50))(q0, v0)
    sol = da.simulate(system, method, q0, v0, h=0.1, steps=50)
    np.testing.assert_allclose(np.concatenate([q, v]), np.concatenate([sol.q[-1], sol.v[-1]]), atol=1e-12)


def test_the_contest_takes_the_quickest_that_is_accurate_enough():
    rows = [
        {"who": "ours", "solver": "a", "setting": "h = 1", "error": 1e-4, "seconds": 2.0},
        {"who": "ours", "solver": "b", "setting": "h = 2", "error": 1e-2, "seconds": 1.0},
        {"who": "peer", "solver": "c", "setting": "tol = 1", "error": 1e-6, "seconds": 0.5},
        {"who": "peer", "solver": "d", "setting": "tol = 2", "error": None},
    ]
    assert fastest(rows, "ours", 1e-3)["solver"] == "a"
    assert fastest(rows, None, 1e-7) is None
    table = contest("A problem", rows)
    assert [r["level"] for r in table.rows] == [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6]
    words = where_peers_win({"peers": Section("peers", "", [table])})
    assert "peer c reached errors of 1e-01, 1e-02, 1e-03, 1e-04 first, 2.0 to 4.0 times quicker" in words
    assert "Only a peer reached errors of 1e-05, 1e-06" in words


def test_the_least_lead_is_found_between_the_levels():
    rows = [
        {"who": "ours", "error": 1e-2, "seconds": 1.0},
        {"who": "ours", "error": 1e-6, "seconds": 4.0},
        {"who": "peer", "error": 3e-3, "seconds": 3.0},
        {"who": "peer", "error": 9e-6, "seconds": 8.0},
    ]
    # At 3e-3 ours needs the accurate run (4 s) and the peer 3 s; at 1e-2 and at 1e-5 ours leads.
    assert least_lead(rows, 1e-5, 1e-1) == (0.75, 3e-3)
    assert least_lead(rows, 5e-3, 1e-1) == (0.75, 5e-3)
    assert least_lead(rows[:2], 1e-5, 1e-1) is None
    table = Table("", [("error", "", ""), ("who", "", "")], rows)
    (line,) = [x for x in claims({"peers": Section("peers", "", [table])}) if "work-precision" in x]
    assert line.startswith("Does not hold")
    assert "0.75" in line


def test_claims_name_what_fails():
    columns = [("case", "case", ""), ("ratio", "ratio", ".2f")]
    table = Table("", columns, [{"case": "good", "ratio": 1.0}, {"case": "bad", "ratio": 9.0}])
    line = claims({"c": Section("c", "", [table])})[0]
    assert line.startswith("Holds for 1 of 2")
    assert line.endswith("Above the bound: `bad`.")
    assert "| good | 1.00 |" in markdown(table)


def test_a_busy_machine_decides_nothing_about_cores():
    columns = [("case", "case", ""), ("speedup", "speed-up", ".2f")]
    row = {"case": "a", "speedup": 1.0, "control": 1.02, "decides": False}
    (line,) = claims({"ensemble": Section("ensemble", "", [Table("", columns, [row])])})
    assert line.startswith("Not decided for 1 of 1")
    (line,) = claims({"ensemble": Section("ensemble", "", [Table("", columns, [row | {"decides": True}])])})
    assert line.startswith("Does not hold")


def test_sections_are_chosen_by_name():
    assert chosen(None) == list(SECTIONS)
    assert chosen("peers, c") == ["c", "peers"]
    with pytest.raises(ValueError, match="--only"):
        chosen("c,typo")


def test_every_section_is_there():
    for place in SECTIONS.values():
        module, function = place.split(".")
        assert callable(getattr(importlib.import_module(f"dalembert.lab.bench.{module}"), function))


def test_one_section_to_file_and_page(tmp_path):
    gpu = tmp_path / "gpu.json"
    gpu.write_text(json.dumps({"device": "Some GPU", "jax": "1", "PendulumCVT kernel": 1e9}))
    shown = []
    found = run(["tag"], Settings.short(), shown.append, gpu)
    assert [s.name for s in shown] == ["tag", "gpu"]
    assert found["machine"]["cpu"]
    assert found["machine"]["versions"]["dalembert"] == da.__version__
    results = tmp_path / "results.json"
    results.write_text(json.dumps(found))
    report.write(results, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    for words in ("the one-kernel tag", "Some GPU", "ratios", found["machine"]["cpu"]):
        assert words in page


def test_a_page_with_a_figure(tmp_path):
    row = {"who": "ours", "solver": "frame", "setting": "h = 1", "error": 1e-4, "seconds": 2.0}
    columns = [("who", "who", ""), ("error", "error", ".1e"), ("seconds", "seconds", ".2g")]
    found = run([], Settings.short(), lambda s: None)
    found["sections"]["peers"] = Section("peers", "What.", [Table("A problem", columns, [row])]).to_json()
    results = tmp_path / "results.json"
    results.write_text(json.dumps(found))
    page, image = report.write(results, tmp_path / "page.md")
    assert "![Error against time](page.png)" in page.read_text()
    assert image.stat().st_size > 5000


def test_a_page_from_several_runs(tmp_path):
    """A section of another run takes the place of that of the first, and says on which machine it was measured."""
    paths = []
    for cpu, words in (("First CPU", "Old words."), ("Second CPU", "New words.")):
        found = run([], Settings.short(), lambda s: None)
        found["machine"]["cpu"] = cpu
        found["sections"]["tag"] = Section("tag", words).to_json()
        if cpu == "First CPU":
            found["sections"]["gpu"] = Section("gpu", "Its words.").to_json()
        paths.append(tmp_path / f"{cpu}.json")
        paths[-1].write_text(json.dumps(found))
    report.write(paths[0], tmp_path / "page.md", paths[1:])
    page = (tmp_path / "page.md").read_text()
    assert "Old words." not in page
    whole, _, tag = page.partition("New words.")
    assert "First CPU" in whole
    assert "Measured in a run of its own. Machine: Second CPU" in tag
    assert "Second CPU" not in whole + tag.partition("Its words.")[2]


def test_the_command_refuses_unknown_sections(tmp_path):
    done = called("bench", "--only", "typo", cwd=tmp_path)
    assert done.returncode == 1
    assert "--only takes names of c, ensemble" in done.stderr.replace("\n", " ")
