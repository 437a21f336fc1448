# Compile and link options of Heddle's targets for the Kokkos that was found. Sets HEDDLE_KOKKOS_HAS_DEVICE: whether
# Kokkos computes on a device, or on an emulated one; HEDDLE_KERNEL_MEMORY: the file of core/src/tensor/memory for the memory that it
# computes in; HEDDLE_KOKKOS_HAS_THREADS: whether it computes with several threads of the host.
string(TOUPPER "${Kokkos_DEVICES}" heddle_kokkos_devices)
set(HEDDLE_KOKKOS_HAS_DEVICE OFF)
set(HEDDLE_KERNEL_MEMORY host)
if(heddle_kokkos_devices MATCHES "CUDA|HIP|SYCL|OPENMPTARGET|OPENACC")
  set(HEDDLE_KOKKOS_HAS_DEVICE ON)
  set(HEDDLE_KERNEL_MEMORY kokkos_device)
  if(HEDDLE_EMULATE_DEVICE)
    message(FATAL_ERROR "HEDDLE_EMULATE_DEVICE needs a Kokkos that computes on the host, but the one in ${Kokkos_DIR} has "
      "${Kokkos_DEVICES}.")
  endif()
elseif(HEDDLE_EMULATE_DEVICE)
  set(HEDDLE_KOKKOS_HAS_DEVICE ON)
  set(HEDDLE_KERNEL_MEMORY emulated_device)
endif()
set(HEDDLE_KOKKOS_HAS_THREADS OFF)
if(heddle_kokkos_devices MATCHES "OPENMP(;|$)|THREADS|HPX")
  set(HEDDLE_KOKKOS_HAS_THREADS ON)
endif()
if(HEDDLE_KOKKOS_BACKEND AND NOT HEDDLE_KOKKOS_BACKEND IN_LIST heddle_kokkos_devices)
  message(FATAL_ERROR "HEDDLE_KOKKOS_BACKEND asks for ${HEDDLE_KOKKOS_BACKEND}, but the Kokkos in ${Kokkos_DIR} has "
    "${Kokkos_DEVICES}: set Kokkos_ROOT to the prefix of one that has it (docs/dependencies.md).")
endif()

# A static Kokkos must exist once in a process, or kernels would use a second one that was never initialised: the core
# library contains all of it and exports it, so that nothing else needs a copy.
set(HEDDLE_WHOLE_KOKKOS "")
if(TARGET Kokkos::kokkoscore)
  get_target_property(heddle_kokkos_type Kokkos::kokkoscore TYPE)
  if(heddle_kokkos_type STREQUAL "STATIC_LIBRARY")
    set(HEDDLE_WHOLE_KOKKOS "LINKER:--whole-archive,$<TARGET_FILE:Kokkos::kokkoscore>,--no-whole-archive")
  endif()
endif()

# CUDA with a host compiler: sources that include Kokkos go to nvcc, all others to the host compiler. Kokkos' own flags are for
# nvcc, so they move from its target to the launcher.
if("CUDA" IN_LIST heddle_kokkos_devices AND NOT CMAKE_CXX_COMPILER MATCHES "nvcc_wrapper$")
  get_filename_component(heddle_kokkos_prefix "${Kokkos_DIR}/../../.." ABSOLUTE)
  find_program(HEDDLE_NVCC_WRAPPER nvcc_wrapper HINTS "${heddle_kokkos_prefix}/bin" REQUIRED)
  get_target_property(flags Kokkos::kokkoscore INTERFACE_COMPILE_OPTIONS)
  string(REGEX REPLACE "\\$<\\$<COMPILE_LANGUAGE:CXX>:([^>]*)>" "\\1" flags "${flags}")
  list(REMOVE_ITEM flags "")
  if(NOT flags MATCHES "expt-relaxed-constexpr")
    list(APPEND flags --expt-relaxed-constexpr)
  endif()
  list(APPEND flags -DFMT_USE_CONSTEXPR=1) # {fmt} 9 asks nvcc for more constexpr than it has
  string(REPLACE ";" "," flags "${flags}")
  set_target_properties(Kokkos::kokkoscore PROPERTIES INTERFACE_COMPILE_OPTIONS "" INTERFACE_LINK_OPTIONS "")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${PROJECT_SOURCE_DIR}/cmake/compile-for-device" "${HEDDLE_NVCC_WRAPPER}" "${flags}" ${HEDDLE_CCACHE})
endif()
