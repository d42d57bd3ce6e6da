/* Launchers are recognised by the environment that they leave. */
#include "tests/harness/harness.h"

#include "transport/launch/launcher.h"

#include <stdio.h>
#include <string.h>

static const char *environment; /* "NAME=value\n..." */

static const char *get(const char *name) {
    static char values[32][128];
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
                   "SLURM_STEP_NUM_NODES, SLURM_STEP_ID, SLURM_STEP_TASKS_PER_NODE, "
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
                   "SLURM_STEP_NUM_NODES, SLURM_STEP_ID",
      .rank = 1,
      .size = 2,
      .local = 1,
      .locals = 2,
      .job = "slurm-9.0"}},
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
