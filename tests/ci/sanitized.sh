#!/bin/sh
# sanitized.sh SANITIZERS [CTEST OPTIONS]: builds the tests with them in ./build, and runs those that the options choose.
set -eu
sanitizers=$1
shift
cmake -S "$CI_SOURCE" -B build -DCMAKE_BUILD_TYPE=RelWithDebInfo -DENGINE_CUDA=OFF -DENGINE_WERROR=ON -DENGINE_SANITIZE="$sanitizers"
cmake --build build
cd build
exec ctest --output-on-failure --no-tests=error "$@"
