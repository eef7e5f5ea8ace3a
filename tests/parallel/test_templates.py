"""The templates of the guide, given to JAX's own detection of SLURM and Kubernetes."""

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from jax._src.clusters.k8s_cluster import K8sCluster
from jax._src.clusters.slurm_cluster import SlurmCluster

from pages import ROOT, all_blocks
from worldline.cli.arguments import take_task, train_settings

PAGE = ROOT / "docs" / "guides" / "devices.md"


def template(section: str) -> str:
    (code,) = [block.code for block in all_blocks(PAGE) if block.section == section]
    return code


@pytest.fixture
def kubernetes(monkeypatch):
    """The objects of the template, in a cluster that makes its pods: by kind, and what was read."""
    objects = {each["kind"]: each for each in yaml.safe_load_all(template("Kubernetes"))}
    job, read = objects["Job"], []
    name, spec = job["metadata"]["name"], job["spec"]["template"]["spec"]
    here = {"index": 0}

    def made(**fields: Any) -> types.SimpleNamespace:
        return types.SimpleNamespace(**fields)

    def list_pods(namespace: str, field_selector: str) -> Any:
        read.append(("", "pods", "list"))
        owner = made(controller=True, kind="Job", name=name)
        metadata = made(
            name=f"{name}-{here['index']}", labels={"job-name": name}, owner_references=[owner]
        )
        return made(items=[made(metadata=metadata, spec=made(subdomain=spec.get("subdomain")))])

    def read_job(name: str, namespace: str) -> Any:
        read.append(("batch", "jobs", "get"))
        metadata = made(name=job["metadata"]["name"], labels={})
        return made(metadata=metadata, spec=made(parallelism=job["spec"]["parallelism"]))

    core = made(list_namespaced_pod=list_pods)
    library = made(
        config=made(load_incluster_config=lambda: None),
        client=made(
            CoreV1Api=lambda: core,
            BatchV1Api=lambda: made(read_namespaced_job=read_job),
            exceptions=made(ApiException=OSError),
        ),
    )
    monkeypatch.setitem(sys.modules, "kubernetes", library)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("HOSTNAME", "localhost")
    monkeypatch.setattr(K8sCluster, "_namespace", lambda: "default")
    for cached in (K8sCluster._pod, K8sCluster._job):
        cached.__func__.cache_clear()
    yield objects, read, here
    for cached in (K8sCluster._pod, K8sCluster._job):
        cached.__func__.cache_clear()


def test_kubernetes_gives_jax_what_it_asks_for(kubernetes, monkeypatch):
    objects, read, here = kubernetes
    assert K8sCluster.is_env_present()
    job = objects["Job"]["spec"]
    assert job["completionMode"] == "Indexed"
    assert job["completions"] == job["parallelism"] == K8sCluster.get_process_count()
    for index in range(job["completions"]):
        here["index"] = index
        monkeypatch.setenv("JOB_COMPLETION_INDEX", str(index))  # which the mode gives
        assert K8sCluster.get_process_id() == index
        host, _, port = K8sCluster.get_coordinator_address(0, None).partition(":")
        assert (host, int(port) > 1024) == ("humanoid-0.worldline", True)
    # That name is one of the headless service, whose pods are those of the job.
    pod, service = job["template"]["spec"], objects["Service"]
    assert host == f"{objects['Job']['metadata']['name']}-0.{service['metadata']['name']}"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"job-name": objects["Job"]["metadata"]["name"]}
    # And what was read may be read by the account of the pods.
    account = objects["ServiceAccount"]["metadata"]["name"]
    assert pod["serviceAccountName"] == account
    (subject,) = objects["RoleBinding"]["subjects"]
    assert (subject["kind"], subject["name"]) == ("ServiceAccount", account)
    assert objects["RoleBinding"]["roleRef"]["name"] == objects["Role"]["metadata"]["name"]
    granted = {
        (group, resource, verb)
        for rule in objects["Role"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert set(read) <= granted and len(set(read)) == 2


def test_kubernetes_runs_a_command_that_is_one(kubernetes):
    objects, _, _ = kubernetes
    pod = objects["Job"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    program, command, *arguments = [*container["command"], *container["args"]]
    assert (program, command) == ("worldline", "train")
    settings = train_settings(*take_task(arguments))
    assert settings.cluster.coordinator == "auto"
    assert settings.run.resume
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    (volume,) = pod["volumes"]
    assert settings.run.out.is_relative_to(mounts[volume["name"]])


#: Starts two tasks as `srun` does, with the variables that it sets; they run on this machine.
SRUN = """#!{python}
import os, subprocess, sys
arguments = sys.argv[1:]
while arguments[0].startswith("--"):
    arguments.pop(0)
print(*arguments, file=open("asked", "a"))
if os.path.exists("fail"):
    os.remove("fail")
    sys.exit(2)
assert arguments.pop(0) == "worldline"
step = {{
    "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_NODES": "1",
    "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
}}
tasks = [
    subprocess.Popen(
        [sys.executable, "-m", "worldline.cli", *arguments],
        env={{**os.environ, **step, "SLURM_PROCID": str(i), "SLURM_LOCALID": "0"}},
    )
    for i in range(2)
]
sys.exit(max(task.wait() for task in tasks))
"""


def slurm(folder: Path, options: str) -> "subprocess.CompletedProcess[str]":
    """Runs the script as SLURM does, with a small training in place of the template's."""
    script = template("SLURM")
    assert script.splitlines()[0] == "#!/bin/bash"
    (folder / "job.sh").write_text(script.replace("gym/humanoid", f"robot/reach {options}"))
    (folder / "srun").write_text(SRUN.format(python=sys.executable))
    (folder / "srun").chmod(0o755)
    number = str(os.getpid() % 2**12)  # of the job: JAX makes a port of it
    return subprocess.run(
        ["bash", "job.sh"],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": number},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_slurm_asks_for_a_task_a_process_and_tries_again(tmp_path):
    """With a `srun` that fails once, and then has nothing to train."""
    options = dict(
        line.removeprefix("#SBATCH --").partition("=")[::2]
        for line in template("SLURM").splitlines()
        if line.startswith("#SBATCH")
    )
    assert options["ntasks-per-node"] == "1"
    assert int(options["nodes"]) > 1
    assert f"--cpus-per-task={options['cpus-per-task']}" in template("SLURM").split("srun")[1]
    (tmp_path / "fail").touch()
    done = slurm(tmp_path, "--help")
    assert done.returncode == 0, done.stderr
    first, second = (tmp_path / "asked").read_text().splitlines()
    assert first == second
    settings = train_settings(*take_task(first.replace("--help", "").split()[2:]))
    assert settings.run.resume and settings.run.out is not None
    assert settings.cluster.coordinator == "auto"


@pytest.mark.slow
def test_two_tasks_of_slurm_train_as_one(tmp_path, monkeypatch):
    for name, value in {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": "node[001-002]",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "0",
    }.items():
        monkeypatch.setenv(name, value)
    assert SlurmCluster.is_env_present()
    assert SlurmCluster.get_coordinator_address(0, None) == f"node001:{65535 - 2**12 + 8}"
    options = "--num-worlds 8 --unroll-length 8 --minibatches 2 --epochs 2 --steps 256 "
    done = slurm(tmp_path, options + "--eval-episodes 2 --evaluations 1 --no-video")
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert np.load(run / "policy.npz").files
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 4
