# Compile and link options of Heddle's targets for the Kokkos that was found. Sets HEDDLE_KOKKOS_HAS_DEVICE: whether
# Kokkos computes on a device, or on an emulated one; HEDDLE_KERNEL_MEMORY: the file of core/src/tensor/memory (or
# emulated_device.cpp of tests/support) for the memory that it computes in; HEDDLE_KOKKOS_HAS_THREADS: whether it
# computes with several threads of the host.
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
    "${Kokkos_DEVICES}: set Kokkos_ROOT to the prefix of one that has it (docs/guide/dependencies.md).")
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

# A device with a host compiler: sources that include Kokkos go to the device's compiler, all others to the host's. Kokkos' own
# flags are for the device's compiler, so they move from its target to the launcher.
set(heddle_device_compiler "")
get_filename_component(heddle_kokkos_prefix "${Kokkos_DIR}/../../.." ABSOLUTE)
if("CUDA" IN_LIST heddle_kokkos_devices AND NOT CMAKE_CXX_COMPILER MATCHES "nvcc_wrapper$")
  find_program(HEDDLE_NVCC_WRAPPER nvcc_wrapper HINTS "${heddle_kokkos_prefix}/bin" REQUIRED)
  set(heddle_device_compiler "${HEDDLE_NVCC_WRAPPER}")
  # {fmt} 9 asks nvcc for more constexpr than it has.
  set(heddle_device_flags --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1)
elseif("HIP" IN_LIST heddle_kokkos_devices AND NOT CMAKE_CXX_COMPILER MATCHES "hipcc$")
  find_program(HEDDLE_HIPCC hipcc HINTS ENV ROCM_PATH PATH_SUFFIXES bin REQUIRED)
  find_library(HEDDLE_HIP_LIBRARY amdhip64 HINTS ENV ROCM_PATH REQUIRED)
  set(heddle_device_compiler "${HEDDLE_HIPCC}")
  # hipcc is a Clang that also gets the host compiler's options, and adds libraries when it only compiles.
  set(heddle_device_flags -Wno-unknown-warning-option -Wno-unknown-pragmas -Wno-pass-failed -Wno-unused-command-line-argument)
endif()
if(heddle_device_compiler)
  get_target_property(flags Kokkos::kokkoscore INTERFACE_COMPILE_OPTIONS)
  string(REGEX REPLACE "\\$<\\$<COMPILE_LANGUAGE:CXX>:([^>]*)>" "\\1" flags "${flags}")
  list(REMOVE_ITEM heddle_device_flags "" ${flags}) # nvcc warns of a flag that is given twice
  list(APPEND flags ${heddle_device_flags})
  list(REMOVE_ITEM flags "")
  string(REPLACE ";" "," flags "${flags}")
  set_target_properties(Kokkos::kokkoscore PROPERTIES INTERFACE_COMPILE_OPTIONS "" INTERFACE_LINK_OPTIONS "")
  if(HEDDLE_HIP_LIBRARY) # which hipcc would add
    set_property(TARGET Kokkos::kokkoscore APPEND PROPERTY INTERFACE_LINK_LIBRARIES "${HEDDLE_HIP_LIBRARY}")
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER "${PROJECT_SOURCE_DIR}/cmake/compile-for-device" "${heddle_device_compiler}" "${flags}" ${HEDDLE_CCACHE})
endif()
