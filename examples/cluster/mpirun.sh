#!/bin/sh
# A training run started by mpirun (Open MPI): ./mpirun.sh RANKS [CONFIG] [ENGINE OPTION]...
# On several hosts: HOSTS=a:2,b:2 MASTER=a ./mpirun.sh 4 config.yaml
set -eu
ranks=${1:?how many ranks?}
config=${2:-configs/quickstart.yaml}
shift
[ "$#" -gt 0 ] && shift
ENGINE_TOKEN=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
export ENGINE_TOKEN
if [ -n "${HOSTS:-}" ]; then
    MASTER_ADDR=${MASTER:?the host of rank 0, as the others reach it}
    MASTER_PORT=${MASTER_PORT:-29500}
    export MASTER_ADDR MASTER_PORT
    set -- --host "$HOSTS" -x MASTER_ADDR -x MASTER_PORT -- "$@"
else
    set -- -- "$@"
fi
# what stands before '--' is mpirun's
before=
while [ "$1" != -- ]; do
    before="$before $1"
    shift
done
shift
# shellcheck disable=SC2086
exec mpirun -np "$ranks" $before -x ENGINE_TOKEN ${MPIRUN_OPTIONS:-} "${ENGINE:-engine}" run "$config" --set mode=ddp "$@"
