# shellcheck shell=sh
# Bare systems of Debian, in folders of the job. Their mounts and processes are in namespaces of their own, so that none
# outlives the job, whatever happens; the folders are removed at its end. CI_MIRROR: of Debian's packages; what else this
# machine's apt-get knows of networks is told to the new systems. CI_CCACHE: a folder that any user may write to; then the
# systems have ccache, and compile there what they have not compiled before.
set -eu

# Before the others: ends the job with 77 where no bare system can be made.
bare_begin() {
    [ "$(id -u)" = 0 ] || { echo "only root makes a bare system"; exit 77; }
    command -v mmdebstrap >/dev/null || { echo "no mmdebstrap"; exit 77; }
    systems=$PWD/systems inside=
    export CI_CCACHE="${CI_CCACHE:-}"
    rm -rf --one-file-system "$systems"
    trap 'rm -rf --one-file-system "$systems"' EXIT
    trap 'kill "$inside" 2>/dev/null; exit 130' INT TERM HUP
    mkdir "$systems"
    apt-config dump | grep -E '^Acquire::(http|https|Retries|Check)' >apt.conf || :
}

# bare_make RELEASE NAME: the system $systems/NAME.
bare_make() {
    mmdebstrap --quiet --variant=minbase --aptopt="$PWD/apt.conf" ${CI_CCACHE:+--include=ccache} "$1" "$systems/$2" \
        ${CI_MIRROR:+"$CI_MIRROR"}
    mkdir "$systems/$2/ccache"
    cp -L /etc/resolv.conf /etc/hosts "$systems/$2/etc/"
}

# bare_builder RELEASE NAME PROGRAM: a system with a clone of this tree and this machine's certificates for pip, as apt uses its
# settings, runs the program.
bare_builder() {
    bare_make "$1" "$2"
    mkdir -p "$systems/$2/etc/ssl/certs"
    cp -L "${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}" "$systems/$2/etc/ssl/certs/machine.crt"
    git clone --quiet "$CI_SOURCE" "$systems/$2/root/engine"
    cp "$3" "$systems/$2/root/build"
    bare_run "$2" env PIP_CERT=/etc/ssl/certs/machine.crt CMAKE_BUILD_PARALLEL_LEVEL="$CMAKE_BUILD_PARALLEL_LEVEL" sh /root/build
}

# bare_run NAME COMMAND [ARGUMENT]...: as root in that system; gives the command's exit code.
bare_run() {
    system=$systems/$1
    shift
    # shellcheck disable=SC2016
    unshare --mount --propagation private --pid --fork --kill-child sh -c '
        mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" &&
            { [ -z "$CI_CCACHE" ] || mount --bind "$CI_CCACHE" "$0/ccache"; } &&
            exec chroot "$0" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/lib/ccache:/usr/sbin:/usr/bin:/sbin:/bin \
                CCACHE_DIR=/ccache CCACHE_UMASK=000 DEBIAN_FRONTEND=noninteractive "$@"' "$system" "$@" &
    inside=$!
    wait "$inside"
}

# bare_newcomer RELEASE: what a newcomer does in a bare Debian of that release: a clone of this tree, then the README's two
# commands. CI_TESTS: words for ctest ("-R NAMES"), else all tests run.
bare_newcomer() {
    bare_begin
    bare_make "$1" newcomer
    git clone --quiet "$CI_SOURCE" "$systems/newcomer/root/engine"
    cat >"$systems/newcomer/root/newcomer" <<'NEWCOMER'
set -eu
cd /root/engine
began=$(date +%s)
./bootstrap run configs/quickstart.yaml
ran=$(date +%s)
cmake --install build --prefix /tmp/installed >/dev/null && /tmp/installed/bin/engine version --features | grep 'levels .* base'
# shellcheck disable=SC2086
./bootstrap test $CI_TESTS
echo "$(. /etc/os-release && echo "$PRETTY_NAME"): quickstart $((ran - began)) s, tests $(($(date +%s) - ran)) s"
NEWCOMER
    bare_run newcomer env CI_TESTS="${CI_TESTS:-}" CTEST_PARALLEL_LEVEL="$CTEST_PARALLEL_LEVEL" \
        CMAKE_BUILD_PARALLEL_LEVEL="$CMAKE_BUILD_PARALLEL_LEVEL" sh /root/newcomer
}
