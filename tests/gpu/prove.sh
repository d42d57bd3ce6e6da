#!/bin/sh
# Proves the GPU part on this machine: builds it, runs all that needs a GPU, each thing with a limit, never stopping at
# a failure, and ends with one table. ./bootstrap gpu-test calls it.
#   --quick        small cases, no sanitizer, no benchmark beside PyTorch
#   --only P,...   these parts alone; each ends within 9 minutes, what it has not come to then is told as such
#   --list         the parts
#   FILE           where the table goes: bench/results/gpu-NAME.txt by default
# ENGINE=PROGRAM, with what was built in its folder, is taken as it is: nothing is built. An engine_emulated makes this
# a test of the script itself.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
engine=${ENGINE:-$root/build/engine}
build=$(dirname -- "$engine")
inside=
if [ "${1:-}" = --inside ]; then # one step: this script again, so that a limit can end it
    inside=yes
    shift
fi
parts() {
    cat <<'P'
build      builds for this machine's GPUs, as each part does where it is not done yet
ops        tests: every op, memory, lanes, recordings, plans of cuDNN
training   tests: networks, modes, carriers, launched ranks, faults of the machine
bits-f32   the same bits on every way that gradients take, f32
bits-bf16  the same in bf16
faults     ranks that are killed, a GPU that is not there
many       the same bits over all GPUs, where there are several
memcheck   NVIDIA's checker of memory
racecheck  NVIDIA's checker of races
synccheck  NVIDIA's checker of barriers
layers     every layer of ResNet-50 and GPT-2, timed
losses     the first losses from the same weights as PyTorch
gpt2       tokens a second beside PyTorch
resnet50   images a second beside PyTorch
P
}
# What several parts are called together.
together() {
    case $1 in
    tests) echo ops training ;;
    bits) echo bits-f32 bits-bf16 ;;
    sanitizer) echo memcheck racecheck synccheck ;;
    bench) echo layers losses gpt2 resnet50 ;;
    about) ;; # always
    *) echo "$1" ;;
    esac
}
names=$(parts | cut -d' ' -f1) quick=no only=$names file=
take_parts() {
    only=
    for asked in $(printf '%s' "$1" | tr , ' '); do
        for one in $(together "$asked"); do
            printf '%s\n' "$names" | grep -qx -- "$one" || {
                echo "gpu-test: there is no part '$one': --list names them" >&2
                exit 64
            }
            only="$only $one"
        done
    done
}
while [ $# -gt 0 ] && [ -z "$inside" ]; do
    case $1 in
    --quick) quick=yes ;;
    --list) parts; exit 0 ;;
    --only) take_parts "${2:-}" && shift ;;
    -*) echo "gpu-test: unknown option '$1': --quick, --only PART,..., --list, FILE" >&2; exit 64 ;;
    *) file=$1 ;;
    esac
    shift
done
case $engine in
*_emulated)
    emulated=yes ENGINE_CUDA_LIBRARIES=${ENGINE_CUDA_LIBRARIES:-$build/emulated}
    export ENGINE_CUDA_LIBRARIES
    ;;
*) emulated=no ;;
esac
if [ -z "$inside" ]; then
    PROVE_WORK=$(mktemp -d) || exit 73
    export PROVE_WORK ENGINE="$engine"
    trap 'rm -rf "$PROVE_WORK"' EXIT
fi
work=$PROVE_WORK
trap 'exit 130' INT TERM
# ---- is there a GPU? ---------------------------------------------------------------------------
look() {
    if ! "$engine" devices --json >"$work/devices.json" 2>"$work/err"; then
        echo "gpu-test: $engine does not run: $(head -n 1 "$work/err")" >&2
        exit 70
    fi
    timeout -k 5 "${PROVE_DOCTOR_SECONDS:-300}" "$engine" doctor cuda >"$work/doctor" 2>&1
    code=$?
    if [ $code = 75 ] || [ $code = 124 ] || [ $code = 137 ]; then
        echo "gpu-test: a GPU hangs, 'engine doctor cuda' ends with $code:" >&2
        tail -n 5 "$work/doctor" >&2
        exit 69
    fi
    if ! grep -q '^ok  *cuda ' "$work/doctor"; then
        why=$(sed -n 's/^missing  *cuda  *//p' "$work/doctor" | head -n 1)
        if nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then # it is there, and of no use: nothing is proven
            echo "gpu-test: nvidia-smi shows a GPU that the engine cannot use: ${why:-$(tail -n 1 "$work/doctor")}" >&2
            exit 69
        fi
        echo "gpu-test: skipped: $why"
        exit 0
    fi
    gpus=$(sed -n 's/^ok  *cuda  *\([0-9]*\) to be used.*/\1/p' "$work/doctor")
    name=$(sed -n 's/^ok  *cuda:0  *\([^,]*\),.*/\1/p' "$work/doctor")
    [ -n "$file" ] ||
        file=$root/bench/results/gpu-$(printf '%s' "${name:-unknown}" | tr 'A-Z ' 'a-z-' | sed 's/^nvidia-//').txt
}
[ -n "$inside" ] || look

# ---- the table ---------------------------------------------------------------------------------
rows=$work/rows failures=0 began=$(date +%s)
clock() { date +%s.%N; }
row() { # WHAT RESULT SECONDS FIGURE; what a figure says of times goes into the JSON as numbers
    printf '%-44s %-10s %8s  %s\n' "$1" "$2" "$3" "$4" | tee -a "$rows"
    printf '%s\n' "$1" "$2" "$3" "$4" | sed 's/[\\"]/\\&/g' | {
        IFS= read -r a; IFS= read -r b; IFS= read -r c; IFS= read -r d
        case $c in *[0-9]*) ;; *) c=null ;; esac
        times=$(printf '%s' "$d" | sed -n 's/.*expected \([0-9.]*\) ms or more, measured \([0-9.]*\),.*/,"expected_ms":\1,"measured_ms":\2/p')
        printf '{"what":"%s","result":"%s","seconds":%s,"figure":"%s"%s}\n' "$a" "$b" "$c" "$d" "$times"
    } >>"$rows.json"
}
# step WHAT LIMIT COMMAND...: output in $out; the last line of $figure, or what it prints, is the row's figure. The limit
# is at most what is left of the part's time.
part_seconds=520 part_end=0
out=$work/out figure=$work/figure
step() {
    what=$1 limit=$2 left=$((part_end - $(date +%s)))
    shift 2
    if [ $left -lt 1 ]; then
        row "$what" "no time" - "the part's $part_seconds s are over"
        failures=$((failures + 1))
        return 1
    fi
    [ "$limit" -le $left ] || limit=$left
    : >"$figure"
    from=$(clock)
    timeout -k 5 "$limit" "$@" >"$out" 2>&1 </dev/null
    code=$?
    took=$(printf '%s %s\n' "$(clock)" "$from" | awk '{printf "%.1f", $1 - $2}')
    result=ok
    case $code in
    0) ;;
    77) result=skipped ;;
    124 | 137) result="too long" failures=$((failures + 1)) ;;
    *) result="FAILED $code" failures=$((failures + 1)) ;;
    esac
    said=$(tail -n 1 "$figure")
    case $result in
    skipped) said=$(sed -n 's/^skipped: //p' "$out" | head -n 1) ;;
    FAIL* | too*) cp "$out" "$work/failed-$failures" && printf '%s\n' "$what" >"$work/failed-$failures.what" ;;
    esac
    [ -n "$said" ] || said=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1 tests/p; /^expected .* measured /p' "$out" | tail -n 1)
    row "$what" "$result" "$took" "$said"
    [ "$result" = ok ]
}

# ---- what there is -----------------------------------------------------------------------------
about() {
    echo "engine $("$engine" version | cut -d' ' -f2), $(cd "$root" && git rev-parse --short HEAD 2>/dev/null || echo 'no commit')"
    echo "$(uname -sr), $(nproc) cores, $(date -u +%Y-%m-%d)"
    [ $emulated = no ] || echo "EMULATED GPUs: what follows proves nothing of a real one"
    "$engine" devices | sed -n '/^cuda /,/^$/p'
}

# ---- programs ----------------------------------------------------------------------------------
test_programs() { # AREA...: those whose names begin with one of these
    for source in $(for area in "$@"; do echo "$root"/tests/gpu/"$area"_*_test.c; done); do
        test=$(basename "$source" _test.c)
        [ $emulated = no ] || test=${test}_emulated
        if [ -x "$build/${test}_test" ]; then
            step "test $test" 600 "$build/${test}_test"
        else
            row "test $test" "not built" - ""
            failures=$((failures + 1))
        fi
    done
}

# ---- the same bits -----------------------------------------------------------------------------
digits='{set: digits, train: 512, val: 64}'
shapes='{set: shapes, train: 128, val: 32}'
# net NAME: sets model, data, optimizer
net() {
    optimizer='{name: sgd, lr: 0.05, momentum: 0.9, clip: 1}' steps=6
    case $1 in
    mlp) model='{zoo: mlp, dropout: 0.2}' data=$digits ;;
    lenet) model=lenet data=$digits ;;
    resnet20) model=resnet20 data=$shapes ;;
    gpt-nano) model='{zoo: gpt-nano, dropout: 0.1}' data='{set: grammar, context: 64, train: 20000, val: 4000}' \
        optimizer='{name: adamw, lr: 1e-3, decay: matrices, clip: 1}' ;;
    esac
}
# train KEY=VALUE...: the run's JSON on standard output
train() {
    set -- "log.dir=$work/runs/run-\$time" checkpoint=off threads=1 "model=$model" "data=$data" "optimizer=$optimizer" \
        "batch={size: 32, shards: 4}" "train=${steps}st" deterministic=bitwise "$@"
    for key in "$@"; do
        set -- "$@" --set "$key"
        shift
    done
    ${prefix:-} "$engine" run --json --quiet "$@"
}
sha() { sed -n 's/.*"weights_sha256": *"\([0-9a-f]*\)".*/\1/p'; }
same_bits() { # NET PRECISION; prints figures, fails when a hash differs
    net "$1"
    failed=0 ways=0
    control=$(train mode=single devices=cuda:0 "precision=$2" | sha)
    [ -n "$control" ] || { echo "the control did not run"; return 1; }
    while read -r mode devices more; do
        [ -n "$mode" ] || continue
        # shellcheck disable=SC2086
        other=$(train "mode=$mode" "devices=$devices" "precision=$2" $more | sha)
        ways=$((ways + 1))
        if [ "$other" != "$control" ]; then
            echo "$1 $2 $mode $devices $more: ${other:-it failed} instead of $control"
            failed=$((failed + 1))
        fi
    done <"$work/ways"
    echo "$((ways - failed)) of $ways ways give single's weights ($(printf '%.12s' "$control"))" >"$figure"
    [ $failed = 0 ]
}
list_ways() {
    cat <<'W'
dp cuda:0,0
dp cuda:0,0 dp.server=sharded
dp cuda:0,0 dp.server=dedicated
dp cuda:0,0 comm.backend=host
ddp cuda:0
ddp cuda:0,0
ddp cuda:0,0 comm.backend=host
W
    [ $quick = yes ] || echo 'dp cuda:0,0,0,0
ddp cuda:0,0,0,0
ddp cuda:0,0 optimizer.shard=true'
}
all_gpus() { # 0,1,2,3: a power of two of them
    n=1 list=0
    while [ $((n * 2)) -le "${gpus:-1}" ] && [ $n -lt 4 ]; do n=$((n * 2)); done
    i=1
    while [ $i -lt $n ]; do list=$list,$i i=$((i + 1)); done
    echo "$list"
}
bits() { # WHAT PRECISION
    nets='mlp gpt-nano'
    [ $emulated = no ] || nets=mlp # the others take it minutes
    [ $quick = yes ] || nets='mlp lenet resnet20 gpt-nano'
    for net in $nets; do step "$1 $net $2" 420 sh "$0" --inside same_bits "$net" "$2"; done
}

# ---- faults ------------------------------------------------------------------------------------
children() { # of process $1, by /proc: one a line
    for stat in /proc/[0-9]*/stat; do
        sed 's/.*) . \([0-9]*\) .*/\1/' "$stat" 2>/dev/null | grep -qx "$1" && basename "$(dirname "$stat")"
    done
}
kill_a_rank() { # DEVICES KEY=VALUE...: kill -9 the last rank; all must be gone with exit code 75
    net mlp
    rm -rf "$work/runs"
    steps=1000000 devices=$1
    shift
    prefix='exec'
    train mode=ddp "devices=$devices" "$@" >"$work/killed" 2>&1 &
    parent=$!
    wanted=$(printf '%s' "$devices" | tr -cd , | wc -c) tries=0 ranks=
    while [ "$(printf '%s\n' "$ranks" | grep -c .)" -le "$wanted" ] && [ $tries -lt 300 ]; do
        sleep 0.2
        tries=$((tries + 1)) ranks=$(children $parent)
    done
    while ! cat "$work"/runs/*/metrics.jsonl 2>/dev/null | grep -q '"loss"' && [ -d /proc/$parent ] && [ $tries -lt 300 ]; do
        sleep 0.2 # until it trains
        tries=$((tries + 1))
    done
    victim=$(printf '%s\n' "$ranks" | tail -n 1)
    [ -n "$victim" ] || { cat "$work/killed"; return 1; }
    from=$(clock)
    kill -9 "$victim"
    wait $parent
    code=$?
    echo "exit code $code, all ended $(printf '%s %s\n' "$(clock)" "$from" | awk '{printf "%.1f", $1 - $2}') s after it" \
        >"$figure"
    left=
    for rank in $ranks; do if [ -d "/proc/$rank" ]; then left="$left $rank"; fi; done
    [ -z "$left" ] || { echo "still alive:$left"; return 1; }
    [ $code = 75 ] || { cat "$work/killed"; return 1; }
}
faults() {
    step "kill -9 of one of 2 ranks, nccl" 120 sh "$0" --inside kill_a_rank cuda:0,0
    step "kill -9 of one of 4 ranks, nccl" 120 sh "$0" --inside kill_a_rank cuda:0,0,0,0
    step "kill -9 of one of 2 ranks, host" 120 sh "$0" --inside kill_a_rank cuda:0,0 comm.backend=host
    step "a GPU that is not there is told" 30 sh "$0" --inside no_such_gpu
}
no_such_gpu() {
    net mlp
    export CUDA_VISIBLE_DEVICES='' ENGINE_EMULATED_GPUS=0
    train mode=single devices=cuda:0
    code=$?
    echo "exit code $code" >"$figure"
    [ $code = 69 ]
}

# ---- several GPUs ------------------------------------------------------------------------------
many() {
    list=$(all_gpus)
    if [ "$list" = 0 ]; then
        row "several GPUs" skipped - "there is one"
        return
    fi
    printf '%s\n' "dp cuda:$list" "dp cuda:$list dp.server=sharded" "ddp cuda:$list" \
        "ddp cuda:$list comm.backend=host" >"$work/ways"
    for precision in f32 bf16; do
        if [ $quick = no ] || [ $precision = f32 ]; then bits "same bits on cuda:$list," $precision; fi
    done
    step "kill -9 of a rank on cuda:$list" 120 sh "$0" --inside kill_a_rank "cuda:$list"
}

# ---- NVIDIA's checker --------------------------------------------------------------------------
sanitizer() { # CHECK
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    if [ -z "$tool" ] || [ $emulated = yes ] || [ $quick = yes ]; then
        row "$1" skipped - "$([ -n "$tool" ] && echo "not with --quick" || echo "not installed")"
        return
    fi
    every=device_every_op # it takes a checker minutes
    [ "$1" = memcheck ] || every=
    for test in device_rows device_tokens device_attention device_accel $every; do
        [ -x "$build/${test}_test" ] || continue
        step "$1 $test" 240 "$tool" --tool "$1" --error-exitcode 99 --launch-timeout 60 "$build/${test}_test"
    done
}

# ---- how fast ----------------------------------------------------------------------------------
# This GPU among those of 'engine model summary --device'; nothing where it is not one. An emulated one stands for any.
known_gpu() {
    [ $emulated = no ] || { echo h100; return; }
    for gpu in h100 h200 a100 l4 4090 b200; do
        grep -o '"name": *"[^"]*"' "$work/devices.json" | grep -iq "[^0-9a-z]$gpu\b" && echo $gpu && return
    done
}
# MODEL BATCH PRECISION: the least milliseconds of a forward and a backward there, by operations and bytes.
expected_ms() {
    gpu=$(known_gpu)
    [ -n "$gpu" ] || return 0
    "$engine" model summary "$1" --batch "$2" --device "$gpu" --set "precision=$3" --set devices=cuda:0 --set mode=single --json |
        sed -n 's/.*"update":{[^}]*"ms":\([0-9.e+-]*\).*"step_ms":\([0-9.e+-]*\).*/\2 \1/p' | awk '{print $1 - $2}'
}
layers() { # MODEL BATCH PRECISION
    "$engine" bench layers --model "$1" --batch "$2" --precision "$3" --set devices=cuda:0 --set mode=single --json \
        >"$work/layers.json" || return $?
    measured=$(grep -o '"\(for\|back\)ward_ms": *[0-9.e+-]*' "$work/layers.json" | awk -F: '{ms += $2} END {print ms}')
    peak=$(sed -n 's/.*"gemm_gflops": *\([0-9.e+]*\).*/\1/p' "$work/layers.json")
    printf '%s %s %s\n' "$peak" "$measured" "$(expected_ms "$@")" |
        awk '{printf "a large product runs at %.1f TFLOP/s; ", $1 / 1000}
             $3 {printf "expected %.2f ms or more, measured %.2f, share %.0f %%\n", $3, $2, 100 * $3 / $2; next}
             {printf "measured %.2f ms\n", $2}' >"$figure"
    [ -s "$figure" ]
}
bench_layers() {
    if [ $emulated = yes ] || [ $quick = yes ]; then
        model=gpt-nano
        [ $emulated = no ] || model=mlp
        step "bench layers $model" 300 sh "$0" --inside layers $model 2 f32
        return
    fi
    for model in resnet50 gpt2; do
        for precision in bf16 f32; do
            step "bench layers $model $precision" 300 sh "$0" --inside layers $model 16 $precision
        done
    done
}
beside_torch() { # WHAT PROGRAM ARGUMENT...
    what=$1
    shift
    if [ $emulated = yes ] || [ $quick = yes ]; then
        row "$what, beside PyTorch" skipped - "not with --quick"
    elif ! python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
        row "$what, beside PyTorch" skipped - "python3 has no torch that sees a GPU"
    else
        step "$what, beside PyTorch" $part_seconds python3 "$@" --engine "$engine"
        cat "$out" >>"$work/more"
    fi
}

# ---- all of it ---------------------------------------------------------------------------------
write_file() {
    {
        echo "The GPU part, proved by ./bootstrap gpu-test"
        echo
        about
        echo
        printf '%-44s %-10s %8s  %s\n' what result seconds figure
        cat "$rows"
        echo
        echo "$failures failed; $(($(date +%s) - began)) s"
        if [ -s "$work/more" ]; then echo && cat "$work/more"; fi
        for failed in "$work"/failed-*.what; do
            [ -f "$failed" ] || continue
            echo
            echo "---- $(cat "$failed") ----"
            tail -n 25 "${failed%.what}"
        done
    } >"$file"
    {
        printf '{"engine":"%s","gpu":"%s","emulated":%s,"failed":%s,"rows":[' "$("$engine" version | cut -d' ' -f2)" \
            "${name:-}" "$([ $emulated = yes ] && echo true || echo false)" "$failures"
        paste -sd, "$rows.json"
        echo ']}'
    } >"${file%.txt}.json"
    echo "$failures failed; the table is in $file, for programs in ${file%.txt}.json"
}
main() {
    : >"$rows"
    : >"$rows.json"
    about
    echo
    part_end=$(($(date +%s) + part_seconds))
    step "engine doctor cuda" 120 "$engine" doctor cuda
    for one in $only; do
        list_ways >"$work/ways"
        part_end=$(($(date +%s) + part_seconds))
        case $one in
        build) ;; # bootstrap has
        ops) test_programs device ;;
        training) test_programs cli train transport ;;
        bits-f32) bits "same bits:" f32 ;;
        bits-bf16) [ $quick = yes ] || bits "same bits:" bf16 ;;
        faults) faults ;;
        many) many ;;
        *check) sanitizer "$one" ;;
        layers) bench_layers ;;
        losses) beside_torch "the first losses" "$root/bench/gpu_losses.py" ;;
        gpt2 | resnet50) beside_torch "$one" "$root/bench/steps.py" "--gpu=$one" "--bound=$(known_gpu)" ;;
        esac
    done
    write_file
    [ $failures = 0 ]
}
if [ -n "$inside" ]; then "$@"; else main; fi
