# bare_system RELEASE: what a newcomer does in a bare Debian of that release: a clone of this tree, then the README's two
# commands. CI_TESTS: words for ctest ("-R NAMES"), else all tests run. CI_MIRROR: of Debian's packages; what else this
# machine's apt-get knows of networks is told to the new system. Its mounts and processes are in namespaces of their own,
# so that none outlives this script, whatever happens.
set -eu

bare_system() {
    [ "$(id -u)" = 0 ] || { echo "only root makes a bare system"; exit 77; }
    command -v mmdebstrap >/dev/null || { echo "no mmdebstrap"; exit 77; }
    system=$PWD/system
    rm -rf --one-file-system "$system"
    trap 'rm -rf --one-file-system "$system"' EXIT
    trap 'kill "$inside" 2>/dev/null; exit 130' INT TERM HUP
    inside=
    apt-config dump | grep -E '^Acquire::(http|https|Retries|Check)' >apt.conf || :
    mmdebstrap --quiet --variant=minbase --aptopt="$PWD/apt.conf" "$1" "$system" ${CI_MIRROR:+"$CI_MIRROR"}
    cp -L /etc/resolv.conf /etc/hosts "$system/etc/"
    git clone --quiet "$CI_SOURCE" "$system/root/engine"
    cat >"$system/root/newcomer" <<'NEWCOMER'
set -eu
mount -t proc proc /proc
cd /root/engine
began=$(date +%s)
./bootstrap run configs/quickstart.yaml
ran=$(date +%s)
# shellcheck disable=SC2086
./bootstrap test $CI_TESTS
echo "$(. /etc/os-release && echo "$PRETTY_NAME"): quickstart $((ran - began)) s, tests $(($(date +%s) - ran)) s"
NEWCOMER
    # shellcheck disable=SC2016
    unshare --mount --propagation private --pid --fork --kill-child sh -c '
        mount --rbind /dev "$0/dev"
        exec chroot "$0" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin CI_TESTS="${CI_TESTS:-}" \
            CTEST_PARALLEL_LEVEL="$CTEST_PARALLEL_LEVEL" CMAKE_BUILD_PARALLEL_LEVEL="$CMAKE_BUILD_PARALLEL_LEVEL" \
            sh /root/newcomer' "$system" &
    inside=$!
    wait "$inside"
}
