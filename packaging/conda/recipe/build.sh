#!/bin/bash
set -euxo pipefail

# shellcheck disable=SC2086 # CMAKE_ARGS are words of conda-forge's compilers
cmake -S . -B build-conda -G Ninja ${CMAKE_ARGS:-} -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" \
  -DCMAKE_INSTALL_LIBDIR=lib -DHEDDLE_BUILD_TESTS=OFF -DHEDDLE_WARNINGS_AS_ERRORS=OFF
cmake --build build-conda --parallel "${CPU_COUNT:-2}"
cmake --install build-conda
