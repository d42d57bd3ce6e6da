#!/bin/sh
# The same runs without Slurm, by hand: HOSTS=a:2,b:2 MASTER=a sh mpirun.sh
set -eu
ENGINE_TOKEN=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
MASTER_ADDR=${MASTER:?the host of rank 0, as the others reach it}
export ENGINE_TOKEN MASTER_ADDR
for ranks in 1 2 4; do
    mpirun -np "$ranks" --map-by node --host "${HOSTS:?as in a:2,b:2}" -x ENGINE_TOKEN -x MASTER_ADDR \
        "${ENGINE:-engine}" run strong.yaml --set mode=ddp --set "log.dir=runs/by-hand-$ranks"
done
