# Finds every third-party library, once. Missing ones are collected and reported together, with their Debian packages.
set(HEDDLE_MISSING "")
set(HEDDLE_MISSING_PACKAGES "")

macro(heddle_missing what debian_packages)
  list(APPEND HEDDLE_MISSING "${what}")
  list(APPEND HEDDLE_MISSING_PACKAGES "${debian_packages}")
endmacro()

# heddle_require(PACKAGE "DEBIAN PACKAGES" [arguments of find_package])
macro(heddle_require package debian_packages)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    string(JOIN " " heddle_wanted ${package} ${ARGN})
    heddle_missing("${heddle_wanted}" "${debian_packages}")
  endif()
endmacro()

heddle_require(Kokkos libtrilinos-kokkos-dev CONFIG OPTIONAL_COMPONENTS separable_compilation)
heddle_require(fmt libfmt-dev 9 CONFIG)
heddle_require(tomlplusplus libtomlplusplus-dev CONFIG)
heddle_require(Boost "libboost1.81-dev libboost-json1.81-dev libboost-program-options1.81-dev libboost-filesystem1.81-dev"
  1.81 CONFIG COMPONENTS json program_options filesystem)
heddle_require(MPI "libopenmpi-dev openmpi-bin" COMPONENTS C)
heddle_require(OpenSSL libssl-dev COMPONENTS Crypto)
heddle_require(ICU libicu-dev COMPONENTS i18n uc)
heddle_require(ZLIB zlib1g-dev)
heddle_require(yaml-cpp libyaml-cpp-dev CONFIG)
set(HDF5_PREFER_PARALLEL TRUE)
heddle_require(HDF5 libhdf5-openmpi-dev COMPONENTS C)

heddle_require(PkgConfig pkg-config)
if(PkgConfig_FOUND)
  pkg_check_modules(Zstd QUIET IMPORTED_TARGET libzstd)
  pkg_check_modules(Hwloc QUIET IMPORTED_TARGET hwloc>=2)
  # Optional: without it `heddle clean` has no rule about languages.
  pkg_check_modules(ExtTextCat QUIET IMPORTED_TARGET libexttextcat)
endif()
if(NOT Zstd_FOUND)
  heddle_missing(zstd libzstd-dev)
endif()
if(NOT Hwloc_FOUND)
  heddle_missing("hwloc 2" libhwloc-dev)
endif()

# Not by pkg-config: Debian 13's sentencepiece.pc asks for a protobuf-lite.pc that its package does not bring.
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_trainer.h)
find_library(SENTENCEPIECE_LIBRARY sentencepiece)
find_library(SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train)
if(SENTENCEPIECE_INCLUDE_DIR AND SENTENCEPIECE_LIBRARY AND SENTENCEPIECE_TRAIN_LIBRARY)
  add_library(heddle_sentencepiece INTERFACE IMPORTED)
  target_include_directories(heddle_sentencepiece INTERFACE "${SENTENCEPIECE_INCLUDE_DIR}")
  target_link_libraries(heddle_sentencepiece INTERFACE "${SENTENCEPIECE_LIBRARY}" "${SENTENCEPIECE_TRAIN_LIBRARY}")
else()
  heddle_missing(SentencePiece libsentencepiece-dev)
endif()

# oneDNN's own package file in Debian 12 requires OpenCL headers that Heddle does not need, so the library is searched
# for directly.
find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(ONEDNN_LIBRARY dnnl)
if(ONEDNN_INCLUDE_DIR AND ONEDNN_LIBRARY)
  file(STRINGS "${ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" heddle_onednn_major REGEX "define DNNL_VERSION_MAJOR")
  string(REGEX REPLACE ".*DNNL_VERSION_MAJOR +" "" heddle_onednn_major "${heddle_onednn_major}")
  if(NOT heddle_onednn_major MATCHES "^[23]$")
    message(FATAL_ERROR "Heddle needs oneDNN 2 or 3, and ${ONEDNN_INCLUDE_DIR} has version ${heddle_onednn_major}: "
      "set -DONEDNN_INCLUDE_DIR and -DONEDNN_LIBRARY to another installation (docs/guide/dependencies.md).")
  endif()
  add_library(heddle_onednn INTERFACE IMPORTED)
  target_include_directories(heddle_onednn INTERFACE "${ONEDNN_INCLUDE_DIR}")
  target_link_libraries(heddle_onednn INTERFACE "${ONEDNN_LIBRARY}")
elseif(NOT Kokkos_DEVICES MATCHES "CUDA|HIP|SYCL|OPENMPTARGET|OPENACC")
  heddle_missing(oneDNN libdnnl-dev) # computes on the host: of no use where tensors lie on a device
endif()

# LAPACK's C interface, and a LAPACK of one thread: a library with threads of its own is slow where each core has a rank.
find_path(LAPACKE_INCLUDE_DIR lapacke.h PATH_SUFFIXES lapacke openblas)
find_library(LAPACKE_LIBRARY NAMES lapacke openblas flexiblas) # the last two have the interface in them
if(LAPACKE_INCLUDE_DIR AND LAPACKE_LIBRARY)
  add_library(heddle_lapacke INTERFACE IMPORTED)
  target_include_directories(heddle_lapacke INTERFACE "${LAPACKE_INCLUDE_DIR}")
  target_link_libraries(heddle_lapacke INTERFACE "${LAPACKE_LIBRARY}")
else()
  heddle_missing(LAPACKE "liblapacke-dev libopenblas-serial-dev")
endif()

if(HEDDLE_BUILD_TESTS)
  heddle_require(GTest "libgtest-dev libgmock-dev" CONFIG)
endif()

if(HEDDLE_MISSING)
  string(JOIN "\n  " heddle_list ${HEDDLE_MISSING})
  string(JOIN " " heddle_packages ${HEDDLE_MISSING_PACKAGES})
  message(FATAL_ERROR "Heddle needs, and did not find:\n  ${heddle_list}\n"
    "On Debian 12: apt-get install ${heddle_packages}\n"
    "Elsewhere: install them and add their prefixes to CMAKE_PREFIX_PATH (docs/guide/dependencies.md).")
endif()

include(HeddleFixKokkos)
# MPI is used through its C interface only; the old C++ one in mpi.h costs compile time and an extra library.
set_property(TARGET MPI::MPI_C APPEND PROPERTY
  INTERFACE_COMPILE_DEFINITIONS OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
# A parallel HDF5's header includes mpi.h, which its target does not bring.
if(HDF5_IS_PARALLEL)
  set_property(TARGET hdf5::hdf5 APPEND PROPERTY INTERFACE_LINK_LIBRARIES MPI::MPI_C)
endif()
