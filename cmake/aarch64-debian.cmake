# Toolchain file for AArch64 with Debian's cross compiler. HEDDLE_SYSROOT in the environment names a folder with Debian's
# arm64 packages, unpacked (docs/guide/dependencies.md#aarch64).
set(sysroot "$ENV{HEDDLE_SYSROOT}")
if(NOT EXISTS "${sysroot}/usr/include")
  message(FATAL_ERROR "HEDDLE_SYSROOT is \"${sysroot}\"; expected a folder with the target's usr/include and usr/lib.")
endif()
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT "${sysroot}")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L "${sysroot}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()

set(libraries "${sysroot}/usr/lib/aarch64-linux-gnu")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${sysroot}")
set(ENV{PKG_CONFIG_LIBDIR} "${libraries}/pkgconfig:${sysroot}/usr/share/pkgconfig")
# The wrappers mpicc and h5pcc of this machine would name its own libraries.
set(MPI_SKIP_COMPILER_WRAPPER ON)
set(MPI_C_HEADER_DIR "${libraries}/openmpi/include")
set(MPI_C_LIB_NAMES mpi)
set(MPI_mpi_LIBRARY "${libraries}/openmpi/lib/libmpi.so")
set(HDF5_C_COMPILER_EXECUTABLE false)
set(HDF5_ROOT "${libraries}/hdf5/openmpi")
# Debian's alternatives are links that are made when a package is installed.
set(LAPACKE_LIBRARY "${libraries}/liblapacke.so;${libraries}/openblas-serial/libopenblas.so")
