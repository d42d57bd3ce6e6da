#!/bin/sh
# A training run on a Slurm cluster: sbatch slurm.sh [CONFIG] [ENGINE OPTION]...
# Slurm starts one process for each device; each finds its rank, and the others, by the step's environment.
#SBATCH --job-name=engine
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --signal=TERM@60
# (60 s before the time is over every rank is told to save and end; 'checkpoint.resume: auto' goes on from there)
set -eu
config=${1:-configs/quickstart.yaml}
[ "$#" -gt 0 ] && shift
# All ranks of the job share a secret, so that nobody else on the network can join.
ENGINE_TOKEN=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
export ENGINE_TOKEN
exec srun "${ENGINE:-engine}" run "$config" --set mode=ddp --set "threads=${SLURM_CPUS_PER_TASK:-1}" "$@"
