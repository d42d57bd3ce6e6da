/* What of the host training depends on: cores, memory, names, the network of this machine, a folder to write to. */
#include "cli/machine/doctor.h"

#include "engine/base/text.h"
#include "engine/device/runtime.h"
#include "engine/tell/processor.h"
#include "engine/tell/usage.h"
#include "transport/launch/launcher.h"
#include "transport/link/mpi_module.h"
#include "transport/store/store.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

static void host_check_processor(struct doctor *d) {
    char name[256];
    doctor_begin(d, "processor");
    doctor_say(d, DOCTOR_OK, "%s", processor_here(name, sizeof name));
}

static void host_check_cores(struct doctor *d) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int here = device_host_cores();
    doctor_begin(d, "cores");
    if (here < online)
        doctor_say(d, DOCTOR_OK, "%d of the machine's %ld (affinity or a quota of the container)", here, online);
    else
        doctor_say(d, DOCTOR_OK, "%d", here);
}

static void host_check_energy(struct doctor *d) {
    struct usage u;
    doctor_begin(d, "energy");
    usage_begin(&u, USAGE_POWERCAP);
    if (u.nzones)
        doctor_say(d, DOCTOR_OK, "RAPL of %d processor%s: metrics have 'watts'", u.nzones, u.nzones > 1 ? "s" : "");
    else
        doctor_say(d, DOCTOR_NONE,
                   "no readable " USAGE_POWERCAP "/intel-rapl:*/energy_uj: metrics have no 'watts'\n"
                   "virtual machines have none; elsewhere root lets others read: chmod a+r");
}

/* Reports the limit of locked memory. Memory that the CUDA driver pins does not count; that of network cards does. */
static void host_check_locked(struct doctor *d) {
    enum { ENOUGH = 64 << 20 };
    struct rlimit l;
    char text[32];
    doctor_begin(d, "locked memory");
    if (getrlimit(RLIMIT_MEMLOCK, &l) != 0)
        doctor_say(d, DOCTOR_WARNING, "its limit cannot be read: %s", strerror(errno));
    else if (l.rlim_cur == RLIM_INFINITY)
        doctor_say(d, DOCTOR_OK, "no limit");
    else
        doctor_say(d, DOCTOR_OK, "limit %s%s", text_of_bytes((double)l.rlim_cur, text),
                   l.rlim_cur < ENOUGH ? " (too little for InfiniBand alone: ulimit -l unlimited)" : "");
}

static void host_check_shared(struct doctor *d) {
    struct statvfs fs;
    char text[32];
    doctor_begin(d, "/dev/shm");
    if (statvfs("/dev/shm", &fs) != 0) {
        doctor_say(d, DOCTOR_WARNING, "not there: %s\nthe engine does not need it, but NCCL and MPI do",
                   strerror(errno));
        return;
    }
    double size = (double)fs.f_blocks * (double)fs.f_frsize;
    if (size < 256e6)
        doctor_say(d, DOCTOR_WARNING,
                   "%s in all: too little for NCCL with several ranks\n"
                   "start the container with --shm-size=1g or --ipc=host",
                   text_of_bytes(size, text));
    else
        doctor_say(d, DOCTOR_OK, "%s in all", text_of_bytes(size, text));
}

/* A server on a free port, and a client of it. */
static enum error host_try_loopback(void) {
    struct store *server = NULL, *client = NULL;
    struct store_params p = {.url = "tcp://127.0.0.1:0", .serve = true, .timeout = 5};
    TRY(store_open(&p, &server));
    p.serve = false;
    p.url = store_url(server);
    enum error err = store_open(&p, &client);
    if (err == ERR_NONE) err = store_set(client, "doctor", "1", 1);
    store_close(client);
    store_close(server);
    return err;
}

static void host_check_network(struct doctor *d) {
    doctor_begin(d, "loopback");
    if (host_try_loopback() == ERR_NONE)
        doctor_say(d, DOCTOR_OK, "a message over 127.0.0.1 arrives and is answered");
    else
        doctor_error(d, DOCTOR_MISSING);
}

static void host_hostname_check(struct doctor *d) {
    char name[256] = "";
    struct addrinfo *found = NULL, want = {.ai_socktype = SOCK_STREAM};
    doctor_begin(d, "host name");
    gethostname(name, sizeof name - 1);
    int rc = getaddrinfo(name, NULL, &want, &found);
    if (rc == 0)
        doctor_say(d, DOCTOR_OK, "%s resolves", name);
    else
        doctor_say(
            d, DOCTOR_WARNING,
            "%s does not resolve: %s\nruns on one host do not need this; for several hosts, add it to /etc/hosts", name,
            gai_strerror(rc));
    if (found) freeaddrinfo(found);
}

static void host_check_folder(struct doctor *d) {
    char at[] = "engine-doctor-XXXXXX";
    doctor_begin(d, "this folder");
    if (mkdtemp(at)) {
        rmdir(at);
        doctor_say(d, DOCTOR_OK, "can be written: runs go to ./runs");
    } else {
        doctor_say(d, DOCTOR_WARNING, "cannot be written: %s\nset another folder for runs by log.dir", strerror(errno));
    }
}

static void host_check_launcher(struct doctor *d) {
    struct launcher l;
    bool found = false;
    doctor_begin(d, "launcher");
    if (launcher_find(NULL, &l, &found) != ERR_NONE)
        doctor_error(d, DOCTOR_WARNING);
    else if (found)
        doctor_say(d, DOCTOR_OK, "%s: rank %d of %d (%s)", l.name, l.rank, l.size, l.variables);
    else
        doctor_say(d, DOCTOR_OK, "none: 'engine run' starts the ranks");
}

static void host_check_mpi(struct doctor *d) {
    doctor_begin(d, "MPI");
    if (mpi_probe() == ERR_NONE)
        doctor_say(d, DOCTOR_OK, "the module loads; comm.link: mpi under mpirun or srun");
    else
        doctor_error(d, DOCTOR_NONE);
}

void doctor_host(struct doctor *d) {
    host_check_processor(d);
    host_check_cores(d);
    host_check_energy(d);
    host_check_locked(d);
    host_check_shared(d);
    host_check_network(d);
    host_hostname_check(d);
    host_check_folder(d);
    host_check_launcher(d);
    host_check_mpi(d);
}
