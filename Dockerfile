# The engine for CPUs, from Debian's packages of this tree (docs/install.md).
FROM debian:trixie-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends build-essential
COPY . /build/engine
WORKDIR /build/engine
RUN apt-get build-dep -y --no-install-recommends -P nocheck ./
RUN DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=$(nproc)" dpkg-buildpackage -us -uc -b -Pnocheck

FROM debian:trixie-slim
COPY --from=build /build/engine_*.deb /build/libengine0_*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/*.deb && \
    rm -rf /var/lib/apt/lists/* /tmp/*.deb
WORKDIR /work
ENTRYPOINT ["engine"]
CMD ["help"]
