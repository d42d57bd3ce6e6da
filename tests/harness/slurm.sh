#!/bin/sh
# slurm.sh FOLDER TASKS SCRIPT [ARGUMENT]...
# Runs SCRIPT as a batch job of TASKS tasks in a Slurm cluster of this one host, which is made for it in FOLDER and
# ended after it; prints what the job wrote. Exit code: 0, 1 when the job failed, 77 where no Slurm can run.
# Where it may, it makes namespaces of its own: no port is taken by others, and whatever happens nothing is left behind.
set -u
if [ -z "${SLURM_SH_INSIDE:-}" ]; then
    export SLURM_SH_INSIDE=plain
    if unshare -npf --kill-child --mount-proc true 2>/dev/null; then
        export SLURM_SH_INSIDE=namespaces
        exec unshare -npf --kill-child --mount-proc sh "$0" "$@"
    fi
fi
folder=$1 tasks=$2
shift 2
PATH=$PATH:/usr/sbin:/sbin
for program in munged slurmctld slurmd sbatch; do
    command -v "$program" >/dev/null || { echo "no $program here" >&2; exit 77; }
done
if [ "$SLURM_SH_INSIDE" = namespaces ]; then # Slurm wants an address beside the loopback's
    ip link set lo up && ip link add cables type bridge && ip addr add 10.9.0.1/24 dev cables &&
        ip link set cables up || exit 77
fi
host=$(hostname -s) user=$(id -un)
munge=
control=
node=
# shellcheck disable=SC2317
end() {
    for pid in $node $control $munge; do
        kill "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
}
trap end EXIT
trap 'exit 143' TERM INT

mkdir -p "$folder/state" "$folder/spool" "$folder/munge" || exit 77
chmod 755 "$folder" "$folder/munge"
head -c 64 /dev/urandom >"$folder/munge/key"
chmod 600 "$folder/munge/key"
cat >"$folder/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=17817
SlurmdPort=17818
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=$tasks
PartitionName=all Nodes=ALL Default=YES
END
export SLURM_CONF="$folder/slurm.conf"

munged --force --foreground --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" --num-threads=2 >"$folder/munge/out" 2>&1 &
munge=$!
slurmctld -D -c >"$folder/slurmctld.out" 2>&1 &
control=$!
slurmd -D -c -N "$host" >"$folder/slurmd.out" 2>&1 &
node=$!
tries=0
until sinfo -h -o %T 2>/dev/null | grep -q idle; do
    tries=$((tries + 1))
    if [ "$tries" -gt 50 ] || ! kill -0 "$munge" || ! kill -0 "$control" || ! kill -0 "$node"; then
        echo "Slurm did not start:" >&2
        tail -n 3 "$folder"/slurm*.log "$folder/munge/log" >&2
        exit 77
    fi
    sleep 0.1
done
job=$(sbatch --parsable --nodes=1 --ntasks-per-node="$tasks" --chdir="$folder" \
    --output="$folder/job.out" --error="$folder/job.err" "$@") || exit 77
until state=$(scontrol show job -o "$job" | grep -oE 'JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)'); do
    sleep 0.1
done
cat "$folder/job.out"
cat "$folder/job.err" >&2
[ "$state" = JobState=COMPLETED ]
