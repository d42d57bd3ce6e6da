/* Launchers are recognised by the environment that they leave. */
#include "tests/harness/harness.h"

#include "transport/launch/launcher.h"

#include <stdio.h>
#include <string.h>

static const char *environment; /* "NAME=value\n..." */

static const char *get(const char *name) {
    static char values[32][160];
    static int next;
    size_t n = strlen(name);
    for (const char *line = environment; *line;) {
        size_t length = strcspn(line, "\n");
        if (!strncmp(line, name, n) && line[n] == '=') {
            char *out = values[next++ % 32];
            memcpy(out, line + n + 1, length - n - 1);
            out[length - n - 1] = '\0';
            return out;
        }
        line += length + (line[length] == '\n');
    }
    return NULL;
}

#define TASK_OF_TWO                                                                                                    \
    "SLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=2\nSLURM_LOCALID=0\nSLURM_NODEID=1\nSLURM_STEP_ID=0\n"                       \
    "SLURM_STEP_NUM_NODES=2\nSLURM_STEP_TASKS_PER_NODE=1(x2)\nSLURM_STEP_NODELIST=a,b"
#define OF_TASK                                                                                                        \
    "SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_NODEID, SLURM_STEP_NUM_NODES, "                          \
    "SLURM_STEP_TASKS_PER_NODE, SLURM_STEP_NODELIST"
#define MASTER "MASTER_ADDR=10.0.0.1\nMASTER_PORT=29500\n"
static const struct {
    const char *environment;
    struct launcher want; /* name NULL: none is found */
} right[] = {
    {"", {.name = NULL}},
    {"RANK=1\nHOME=/", {.name = NULL}},
    {"WORLD_SIZE=2\nMASTER_PORT=29500", {.name = NULL}},
    {"RANK=\nWORLD_SIZE=2\nMASTER_PORT=29500", {.name = NULL}},
    {"RANK=1\nWORLD_SIZE=2\n" MASTER,
     {.name = "env://",
      .variables = "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
      .rank = 1,
      .size = 2,
      .local = -1,
      .master = "10.0.0.1:29500"}},
    {"ENGINE_STORE=tcp://127.0.0.1:7\nRANK=3\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\n" MASTER,
     {.name = "engine launch",
      .variables = "RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
      .rank = 3,
      .size = 4,
      .local = 1,
      .locals = 2,
      .master = "10.0.0.1:29500"}},
    {"RANK=0\nWORLD_SIZE=1\nMASTER_ADDR=fd00::1\nMASTER_PORT=1",
     {.name = "env://",
      .variables = "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
      .size = 1,
      .local = -1,
      .master = "[fd00::1]:1"}},
    {"TORCHELASTIC_RUN_ID=x\nTORCHELASTIC_USE_AGENT_STORE=True\nRANK=3\nWORLD_SIZE=4\n"
     "LOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nSLURM_PROCID=1\nSLURM_STEP_ID=0\nSLURM_STEP_NUM_TASKS="
     "4\n" MASTER,
     {.name = "torchrun",
      .variables = "RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
      .rank = 3,
      .size = 4,
      .local = 1,
      .locals = 2,
      .master = "10.0.0.1:29501",
      .job = "x"}},
    {"OMPI_COMM_WORLD_RANK=2\nOMPI_COMM_WORLD_SIZE=3\nOMPI_COMM_WORLD_LOCAL_RANK=2\n"
     "OMPI_COMM_WORLD_LOCAL_SIZE=3\nPMIX_NAMESPACE=77\nSLURM_PROCID=0\nSLURM_STEP_ID=0\n"
     "SLURM_STEP_NUM_TASKS=2",
     {.name = "Open MPI",
      .variables = "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK, "
                   "OMPI_COMM_WORLD_LOCAL_SIZE",
      .rank = 2,
      .size = 3,
      .local = 2,
      .locals = 3,
      .job = "77"}},
    {"OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nRANK=1\nWORLD_SIZE=2\n" MASTER,
     {.name = "env://",
      .variables = "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
      .rank = 1,
      .size = 2,
      .local = -1,
      .master = "10.0.0.1:29500"}},
    {"PMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALRANKID=0\nMPI_LOCALNRANKS=1\n" MASTER,
     {.name = "PMI",
      .variables = "PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS, MASTER_ADDR, MASTER_PORT",
      .rank = 1,
      .size = 2,
      .local = 0,
      .locals = 1,
      .master = "10.0.0.1:29500"}},
    {"SLURM_PROCID=5\nSLURM_STEP_NUM_TASKS=6\nSLURM_LOCALID=1\nSLURM_STEP_ID=2\nSLURM_JOB_ID=100\n"
     "SLURM_NODEID=2\nSLURM_STEP_NUM_NODES=3\nSLURM_STEP_TASKS_PER_NODE=2(x3)\n"
     "SLURM_STEP_NODELIST=gpu[01-02,07]",
     {.name = "Slurm",
      .variables = "SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_NODEID, "
                   "SLURM_STEP_NUM_NODES, SLURM_STEP_TASKS_PER_NODE, "
                   "SLURM_STEP_NODELIST",
      .rank = 5,
      .size = 6,
      .local = 1,
      .locals = 2,
      .master = "gpu01:21602",
      .job = "slurm-100.2"}},
    {"SLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=2\nSLURM_LOCALID=1\nSLURM_STEP_ID=0\nSLURM_JOB_ID=9\n"
     "SLURM_NODEID=0\nSLURM_STEP_NUM_NODES=1\nSLURM_STEP_NODELIST=a",
     {.name = "Slurm",
      .variables = "SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_NODEID, "
                   "SLURM_STEP_NUM_NODES",
      .rank = 1,
      .size = 2,
      .local = 1,
      .locals = 2,
      .job = "slurm-9.0"}},
    /* srun --mpi=none over three nodes that differ, in racks; the fourth task of the third node */
    {"SLURM_PROCID=10\nSLURM_NTASKS=11\nSLURM_STEP_NUM_TASKS=11\nSLURM_LOCALID=2\nSLURM_NODEID=2\nSLURM_JOB_ID=4711\n"
     "SLURM_STEP_ID=0\nSLURM_STEP_NUM_NODES=3\nSLURM_STEP_TASKS_PER_NODE=4(x2),3\n"
     "SLURM_JOB_NODELIST=rack[1-2]n[01-03],gpu[1-2]\nSLURM_STEP_NODELIST=rack[1-2]n[01-03,07],gpu[1-2]\nSLURM_MPI_TYPE="
     "none",
     {.name = "Slurm",
      .variables = "SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_NODEID, "
                   "SLURM_STEP_NUM_NODES, SLURM_STEP_TASKS_PER_NODE, SLURM_STEP_NODELIST",
      .rank = 10,
      .size = 11,
      .local = 2,
      .locals = 3,
      .master = "rack1n01:25376",
      .job = "slurm-4711.0"}},
    /* two tasks of one job array */
    {"SLURM_ARRAY_JOB_ID=500\nSLURM_ARRAY_TASK_ID=1\nSLURM_JOB_ID=500\n" TASK_OF_TWO,
     {.name = "Slurm",
      .variables = OF_TASK,
      .rank = 1,
      .size = 2,
      .local = 0,
      .locals = 1,
      .master = "a:28000",
      .job = "slurm-500.0"}},
    {"SLURM_ARRAY_JOB_ID=500\nSLURM_ARRAY_TASK_ID=2\nSLURM_JOB_ID=501\n" TASK_OF_TWO,
     {.name = "Slurm",
      .variables = OF_TASK,
      .rank = 1,
      .size = 2,
      .local = 0,
      .locals = 1,
      .master = "a:28016",
      .job = "slurm-501.0"}},
    /* srun --mpi=pmi2 and --mpi=pmix set more, which says less */
    {"PMI_RANK=1\nPMI_SIZE=2\nPMI_FD=11\nPMI_JOBID=500.0\nPMIX_RANK=1\nSLURM_JOB_ID=500\n" TASK_OF_TWO,
     {.name = "Slurm",
      .variables = OF_TASK,
      .rank = 1,
      .size = 2,
      .local = 0,
      .locals = 1,
      .master = "a:28000",
      .job = "slurm-500.0"}},
    /* MPICH and Intel MPI in a Slurm job: srun has started a proxy on each node */
    {"PMI_RANK=3\nPMI_SIZE=4\nPMI_FD=9\nMPI_LOCALRANKID=1\nMPI_LOCALNRANKS=2\nSLURM_JOB_ID=500\n" TASK_OF_TWO
     "\n" MASTER,
     {.name = "PMI",
      .variables = "PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS, MASTER_ADDR, MASTER_PORT",
      .rank = 3,
      .size = 4,
      .local = 1,
      .locals = 2,
      .master = "10.0.0.1:29500"}},
    {"PMI_RANK=0\nPMI_SIZE=2\n" MASTER,
     {.name = "PMI",
      .variables = "PMI_RANK, PMI_SIZE, MASTER_ADDR, MASTER_PORT",
      .size = 2,
      .local = -1,
      .master = "10.0.0.1:29500"}},
    /* Kubeflow's PyTorchJob: a rank in each pod, without and with the words of torchrun */
    {"MASTER_ADDR=train-master-0\nMASTER_PORT=23456\nWORLD_SIZE=4\nRANK=3\nPYTHONUNBUFFERED=1\nPET_NNODES=4\n"
     "PET_NPROC_PER_NODE=auto\nPET_NODE_RANK=3\nPET_MASTER_ADDR=train-master-0\nPET_MASTER_PORT=23456",
     {.name = "env://",
      .variables = "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
      .rank = 3,
      .size = 4,
      .local = -1,
      .master = "train-master-0:23456"}},
    /* with an elastic policy there are no ranks before torchrun or engine launch has started them */
    {"PET_RDZV_BACKEND=c10d\nPET_RDZV_ENDPOINT=train-worker-0:29400\nPET_NNODES=1:3\nPET_MAX_RESTARTS=3",
     {.name = NULL}},
    /* Kubernetes' Indexed Job, with what its YAML adds */
    {"JOB_COMPLETION_INDEX=2\nWORLD_SIZE=3\nMASTER_ADDR=train-0.train\nMASTER_PORT=29500",
     {.name = "Indexed Job",
      .variables = "JOB_COMPLETION_INDEX, WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
      .rank = 2,
      .size = 3,
      .local = -1,
      .master = "train-0.train:29500"}},
    {"JOB_COMPLETION_INDEX=2", {.name = NULL}},
    {"PMIX_RANK=0\nPMIX_NAMESPACE=slurm.pmix.9.0\nSLURM_STEP_ID=0\nSLURM_PROCID=0\nSLURM_STEP_NUM_TASKS=1",
     {.name = NULL}},
    /* a batch script, a shell by srun --pty, salloc's interactive step */
    {"SLURM_PROCID=0\nSLURM_JOB_ID=9\nSLURM_NTASKS=4", {.name = NULL}},
    {"SLURM_PROCID=0\nSLURM_STEP_ID=4294967290\nSLURM_STEP_NUM_TASKS=1", {.name = NULL}},
};

static const struct {
    const char *environment, *message;
} wrong[] = {
    {"RANK=1\nWORLD_SIZE=2", "RANK and WORLD_SIZE are set, but MASTER_ADDR and MASTER_PORT are not"},
    {"RANK=2\nWORLD_SIZE=2\n" MASTER, "RANK=2, but WORLD_SIZE=2: ranks are from 0 to 1"},
    {"RANK=one\nWORLD_SIZE=2\n" MASTER, "RANK='one' is not a number of ranks"},
    {"RANK=-1\nWORLD_SIZE=2\n" MASTER, "RANK='-1' is not a number of ranks"},
    {"RANK=0\nWORLD_SIZE=0\n" MASTER, "WORLD_SIZE=0: no ranks"},
    {"RANK=0\nWORLD_SIZE=2\nLOCAL_RANK=2\nLOCAL_WORLD_SIZE=2\n" MASTER,
     "env://: rank 2 of 2 on this host, of 2 in all"},
    {"RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=a\nMASTER_PORT=70000",
     "MASTER_ADDR is set, but MASTER_PORT is no port from 1 to 65535"},
    {"RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=a", "MASTER_ADDR is set, but MASTER_PORT is not"},
    {"RANK=0\n" MASTER, "MASTER_ADDR and RANK are set, but WORLD_SIZE is not"},
    {"RANK=\nWORLD_SIZE=2\n" MASTER, "MASTER_ADDR and WORLD_SIZE are set, but RANK is not"},
    {"RANK=0\nWORLD_SIZE=2\nOMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\n" MASTER,
     "RANK says rank 0, OMPI_COMM_WORLD_RANK says 1 (of 2)"},
    {"SLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=2\nSLURM_STEP_ID=0\nSLURM_STEP_NUM_NODES=2\n"
     "SLURM_STEP_NODELIST=[",
     "SLURM_STEP_NODELIST='[' names no first node"},
#define STEP "SLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=2\nSLURM_STEP_ID=0\nSLURM_STEP_NUM_NODES=2\n"
    {STEP "SLURM_STEP_NODELIST=n[01-04", "SLURM_STEP_NODELIST='n[01-04' names no first node"},
    {STEP "SLURM_STEP_NODELIST=,b", "SLURM_STEP_NODELIST=',b' names no first node"},
    {STEP "SLURM_STEP_NODELIST=a/b", "SLURM_STEP_NODELIST='a/b' names no first node"},
    {STEP "SLURM_STEP_NODELIST=a\nSLURM_JOB_ID=1x", "SLURM_JOB_ID='1x' is not a number"},
    {STEP "SLURM_STEP_NODELIST=a\nSLURM_STEP_TASKS_PER_NODE=2(x",
     "SLURM_STEP_TASKS_PER_NODE='2(x' does not say how many tasks node 0 has"},
    {STEP "SLURM_STEP_NODELIST=a\nSLURM_NODEID=2\nSLURM_STEP_TASKS_PER_NODE=1(x2)",
     "SLURM_STEP_TASKS_PER_NODE='1(x2)' does not say how many tasks node 2 has"},
    {"MASTER_ADDR=localhost\nMASTER_PORT=23456\nWORLD_SIZE=8\nRANK=1\nPET_NNODES=2\nPET_NPROC_PER_NODE=4",
     "PET_NPROC_PER_NODE=4: this pod is to start 4 ranks, and RANK=1 is the pod's number"},
    {"JOB_COMPLETION_INDEX=3\nWORLD_SIZE=3\n" MASTER,
     "JOB_COMPLETION_INDEX=3, but WORLD_SIZE=3: ranks are from 0 to 2"},
    {"JOB_COMPLETION_INDEX=1\nWORLD_SIZE=3",
     "JOB_COMPLETION_INDEX and WORLD_SIZE are set, but MASTER_ADDR and MASTER_PORT are not"},
    {"PMIX_RANK=1\nPMIX_NAMESPACE=prterun-a-1@1", "PMIX_RANK=1, but no variable says how many ranks there are"},
};

static void found(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        struct launcher got;
        bool is;
        const struct launcher *want = &right[i].want;
        environment = right[i].environment;
        assert_ok(launcher_find(get, &got, &is));
        assert_int_equal(is, want->name != NULL);
        if (!is) continue;
        assert_string_equal(got.name, want->name);
        assert_string_equal(got.variables, want->variables);
        assert_string_equal(got.master, want->master);
        assert_string_equal(got.job, want->job);
        assert_int_equal(got.rank, want->rank);
        assert_int_equal(got.size, want->size);
        assert_int_equal(got.local, want->local);
        assert_int_equal(got.locals, want->locals);
    }
}

static void refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct launcher got;
        bool is;
        environment = wrong[i].environment;
        assert_fails(ERR_USAGE, launcher_find(get, &got, &is));
        assert_string_equal(error_message(), wrong[i].message);
    }
}

/* Which start of the same job this is. */
static void test_starts_again(void **state) {
    (void)state;
    struct launcher_job job, other;
    static char first[256];
    environment = "RANK=0\nWORLD_SIZE=1\nMASTER_ADDR=10.0.0.1\nPMI_RANK=1\n";
    assert_ok(launcher_job(get, &job));
    assert_string_equal(job.name, "");
    environment = "SLURM_JOB_ID=17\nSLURM_STEP_ID=2\nSLURM_RESTART_COUNT=3\n";
    assert_ok(launcher_job(get, &job));
    assert_string_equal(job.name, "slurm 17.2");
    assert_int_equal(job.restarts, 3);
    environment = "SLURM_JOB_ID=17\n";
    assert_ok(launcher_job(get, &job));
    assert_string_equal(job.name, "slurm 17.batch");
    assert_int_equal(job.restarts, 0);
    environment = "SLURM_JOB_ID=17\nTORCHELASTIC_RESTART_COUNT=2\nTORCHELASTIC_RUN_ID=none\n";
    assert_ok(launcher_job(get, &job));
    assert_int_equal(job.restarts, 2);
    assert_int_equal(strncmp(job.name, "torchrun ", 9), 0);
    snprintf(first, sizeof first, "%s", job.name);
    environment = "TORCHELASTIC_RESTART_COUNT=5\nTORCHELASTIC_RUN_ID=another\n";
    assert_ok(launcher_job(get, &other)); /* of the same process */
    assert_string_equal(other.name, first);
    environment = "TORCHELASTIC_RESTART_COUNT=many\n";
    assert_fails(ERR_USAGE, launcher_job(get, &job));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_starts_again), cmocka_unit_test(found),
                                       cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
