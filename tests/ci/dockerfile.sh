# shellcheck shell=sh disable=SC2154,SC2034 # $systems is the job's, what is set here is for it
# docker_build FILE CONTEXT: does what a Dockerfile says, in bare systems instead of containers: the stage NAME becomes the
# system docker-NAME, the last one docker-image. Afterwards 'docker_folder' and 'docker_entry' are the image's WORKDIR and
# ENTRYPOINT. It knows the instructions that ours has, and fails at any other.

# One instruction a line, without comments.
docker_steps() {
    awk '/^[[:space:]]*(#|$)/ {next} {if (sub(/\\$/, "")) held = held $0; else {print held $0; held = ""}}' "$1"
}

# The words of ["a", "b"].
docker_words() { printf '%s' "$1" | tr -d '[]",'; }

# docker_copy SYSTEM CONTEXT WORD...: COPY [--from=STAGE] SOURCE... TARGET
docker_copy() {
    to=$systems/$1 from=$2
    shift 2
    case $1 in --from=*) from=$systems/docker-${1#--from=} && shift ;; esac
    target=
    for word; do target=$word; done
    mkdir -p "$to$target"
    while [ $# -gt 1 ]; do
        case $1 in
        .) cp -a "$from/." "$to$target" ;;
        *) # shellcheck disable=SC2086 # a pattern
            cp -a "$from"/$1 "$to$target" ;;
        esac
        shift
    done
}

docker_build() {
    docker_context=$2 stage='' docker_folder=/ docker_entry=''
    docker_steps "$1" >docker.steps
    while read -r instruction rest <&3; do
        echo "docker: $instruction $rest"
        # shellcheck disable=SC2086
        case $instruction in
        FROM)
            set -- $rest # debian:RELEASE-slim [AS NAME]
            release=${1#debian:} stage=docker-${3:-image} docker_folder=/
            release=${release%-slim}
            [ -d "$systems/bare-$release" ] || bare_make "$release" "bare-$release"
            cp -a "$systems/bare-$release" "$systems/$stage"
            ;;
        RUN) bare_run "$stage" sh -c 'cd "$0" && eval "$1"' "$docker_folder" "$rest" ;;
        COPY) docker_copy "$stage" "$docker_context" $rest ;;
        WORKDIR) docker_folder=$rest && mkdir -p "$systems/$stage$rest" ;;
        ENTRYPOINT) docker_entry=$(docker_words "$rest") ;;
        CMD) ;;
        *)
            echo "tests/ci/dockerfile.sh does not know $instruction"
            return 1
            ;;
        esac || return 1
    done 3<docker.steps
}
