# The options of a build. Everything else follows from the presets.
option(HEDDLE_BUILD_TESTS "Build the tests" ON)
option(HEDDLE_NATIVE "Compile everything for this machine only (-march=native), not for x86-64-v2 to v4, or Armv8-A with and without SVE" OFF)
set(HEDDLE_KERNEL_LEVELS all CACHE STRING "Instruction sets that kernels are compiled for: all, or native (the lowest and this machine's)")
set(HEDDLE_KOKKOS_BACKEND "" CACHE STRING "A back end that Kokkos must have, for example OPENMP, CUDA or HIP; any where empty")
option(HEDDLE_EMULATE_DEVICE "For tests: compute on the processor, in memory that only kernels and copies may touch" OFF)
option(HEDDLE_PRECOMPILE "Precompile headers that most files of a target include" ON)
option(HEDDLE_UNITY "Compile the files of a folder together: half the time of a clean build" ON)
option(HEDDLE_WARNINGS_AS_ERRORS "Treat compiler warnings in our own targets as errors" ON)
set(HEDDLE_SANITIZE "" CACHE STRING "Sanitizers for our own targets, for example address,undefined")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# The installed program finds the core library beside it, wherever the two are moved together, and other libraries
# where they were found at configuration.
file(RELATIVE_PATH heddle_bin_to_lib "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
set(CMAKE_INSTALL_RPATH "$ORIGIN/${heddle_bin_to_lib}" "$ORIGIN")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

find_program(HEDDLE_CCACHE ccache)
if(HEDDLE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Sloppiness: otherwise ccache takes no file that uses a precompiled header. Depend: no second run of the preprocessor.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1 "${HEDDLE_CCACHE}")
endif()
