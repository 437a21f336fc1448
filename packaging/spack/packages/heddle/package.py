# Copyright The Heddle authors.
#
# SPDX-License-Identifier: Apache-2.0

from spack.package import *


class Heddle(CMakePackage):
    """Trains encoder-decoder, decoder-only and encoder-only Transformers on clusters, with MPI,
    Kokkos and HDF5: pipeline, data, context and tensor parallelism, verified checkpoints."""

    # The sources are the clone that this recipe is in. A public address belongs here and in `git`.
    homepage = "https://example.org/heddle"
    git = "file://" + ancestor(__file__, 5)

    license("Apache-2.0", checked_by="heddle")

    version("main", branch="main")

    variant("openmp", default=False, description="Several threads a rank, by Kokkos with OpenMP")
    variant("native", default=False, description="Compile for this machine only (-march=native)")
    variant("tests", default=False, description="Build the tests")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")

    # The core library exports the one Kokkos of the process: shared, or static with +pic.
    depends_on("kokkos@3.4:+serial~cuda~rocm")
    depends_on("kokkos+openmp", when="+openmp")
    depends_on("kokkos~openmp", when="~openmp")
    depends_on("onednn@2.6:3")
    depends_on("mpi@3:")
    depends_on("hdf5@1.10:+mpi")
    depends_on("boost@1.81:+json+program_options+filesystem")
    depends_on("fmt@9:")
    depends_on("tomlplusplus@3.3:")
    depends_on("sentencepiece@0.1.91:")
    depends_on("hwloc@2:")
    depends_on("icu4c")
    depends_on("openssl@3:")
    depends_on("openblas threads=none")
    depends_on("yaml-cpp@0.6:")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("googletest@1.12:+gmock", when="+tests", type=("build", "link"))

    # C++20: g++ 12 and clang 14 are the oldest that were tried.
    conflicts("%gcc@:11", msg="Heddle is C++20 and needs g++ 12 or newer")
    conflicts("%clang@:13", msg="Heddle is C++20 and needs clang 14 or newer")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define_from_variant("HEDDLE_BUILD_TESTS", "tests"),
            self.define_from_variant("HEDDLE_NATIVE", "native"),
            # Warnings of compilers that were not tried must not stop a build.
            self.define("HEDDLE_WARNINGS_AS_ERRORS", False),
        ]

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        Executable(self.prefix.bin.heddle)("selftest")
