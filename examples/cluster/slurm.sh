#!/bin/sh
# A training run on a Slurm cluster: sbatch slurm.sh [CONFIG] [ENGINE OPTION]...
# Slurm starts one process for each device; each finds its rank, and the others, by the step's environment.
#SBATCH --job-name=engine
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --signal=TERM@60
#SBATCH --requeue --open-mode=append
set -eu
config=${1:-configs/quickstart.yaml}
[ "$#" -gt 0 ] && shift
# All ranks of the job share a secret, so that nobody else on the network can join.
ENGINE_TOKEN=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
export ENGINE_TOKEN
# The folder has the job's number, which stays when the job is queued again, and is another one for each task of an array.
code=0
srun --mpi=none "${ENGINE:-engine}" run "$config" --set mode=ddp --set "threads=${SLURM_CPUS_PER_TASK:-1}" \
    --set "log.dir=$PWD/runs/slurm-$SLURM_JOB_ID" "$@" || code=$?
# 60 s before the time is over every rank is told to stop; the run saves and ends with 143. Then Slurm queues the job
# again, and the run goes on from there. A job that is preempted is queued again by Slurm itself.
[ "$code" -ne 143 ] || scontrol requeue "$SLURM_JOB_ID"
exit "$code"
