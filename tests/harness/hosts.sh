#!/bin/sh
# hosts.sh FOLDER HOSTS ACTION ENGINE [ARGUMENT]...
# Runs 'ENGINE run ARGUMENT...' as one node on each of HOSTS network namespaces that a bridge joins: hosts in all that
# concerns the network. In FOLDER: hostK.out, hostK.err, hostK.code of each node, K from 0. Needs to be in a user and
# network namespace of its own (unshare -rn).
#   none      waits for all
#   cut:K     once node 0 has said step=20/, takes host K's cable out
#   hang:K    once node 0 has said step=20/, stops the ranks of host K, but not the program that has started them
#   lose:K    once node 0 has said step=20/, kills all processes of host K, and starts its node again a second later
set -u
folder=$1 hosts=$2 action=$3
shift 3
export ENGINE_TOKEN=of-the-test-0123456789

ip link set lo up
ip link add cables type bridge && ip link set cables up || { echo "no bridge here"; exit 77; }

k=0
while [ "$k" -lt "$hosts" ]; do
    unshare -n sleep 1000 </dev/null >/dev/null 2>&1 &
    eval "host$k=$!"
    k=$((k + 1))
done
trap 'kill $(jobs -p) 2>/dev/null' EXIT
trap 'exit 143' TERM INT
own=$(readlink /proc/self/ns/net)

inside() { # HOST COMMAND...
    eval "pid=\$host$1"
    shift
    nsenter -t "$pid" -n "$@"
}

k=0
while [ "$k" -lt "$hosts" ]; do
    eval "pid=\$host$k"
    until [ "$(readlink "/proc/$pid/ns/net")" != "$own" ]; do sleep 0.01; done
    ip link add "cable$k" type veth peer name eth0 netns "$pid" || { echo "no cables here"; exit 77; }
    ip link set "cable$k" master cables up
    inside "$k" ip link set lo up
    inside "$k" ip addr add "10.9.0.$((k + 1))/24" dev eth0
    inside "$k" ip link set eth0 up
    k=$((k + 1))
done

start() { # HOST ARGUMENT...
    node=$1
    shift
    (
        inside "$node" "$@" --nnodes "$hosts" --node-rank "$node" --master-addr 10.9.0.1 \
            >>"$folder/host$node.out" 2>>"$folder/host$node.err"
        echo $? >"$folder/host$node.code"
    ) &
    eval "node$node=$!"
}

engine=$1
shift
k=0
while [ "$k" -lt "$hosts" ]; do
    start "$k" "$engine" run "$@"
    k=$((k + 1))
done

await_step() {
    tries=0
    until grep -q "step=20/" "$folder/host0.err" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -gt 600 ] && return 1
        sleep 0.05
    done
}

case $action in
cut:*)
    await_step
    ip link set "cable${action#cut:}" down
    date +%s.%N >"$folder/acted"
    ;;
hang:*)
    await_step
    k=${action#hang:}
    # a rank's parent lives in the host's network, too
    eval "keep=\$host$k"
    space=$(readlink "/proc/$keep/ns/net")
    for p in /proc/[0-9]*; do
        parent=$(awk '{print $4}' "$p/stat" 2>/dev/null)
        [ "$(readlink "$p/ns/net" 2>/dev/null)" = "$space" ] &&
            [ "$(readlink "/proc/$parent/ns/net" 2>/dev/null)" = "$space" ] && kill -STOP "${p#/proc/}"
    done
    date +%s.%N >"$folder/acted"
    ;;
lose:*)
    await_step
    k=${action#lose:}
    # all that live in the host's network, but for the sleeper that holds it
    eval "keep=\$host$k"
    space=$(readlink "/proc/$keep/ns/net")
    for p in /proc/[0-9]*; do
        p=${p#/proc/}
        [ "$p" != "$keep" ] && [ "$(readlink "/proc/$p/ns/net" 2>/dev/null)" = "$space" ] && kill -9 "$p"
    done
    date +%s.%N >"$folder/acted"
    sleep 1
    start "$k" "$engine" run "$@"
    ;;
esac

k=0
while [ "$k" -lt "$hosts" ]; do
    eval "wait \$node$k"
    date +%s.%N >"$folder/host$k.ended"
    k=$((k + 1))
done
exit 0
