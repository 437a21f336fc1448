# The instruction sets that the build is for. Included after HeddleKokkos. Sets
#   HEDDLE_ARCH_FLAGS         for everything but the kernels that are compiled once for each instruction set
#   HEDDLE_CPU_LEVELS         the levels of those kernels, from the lowest on; empty if there are none
#   HEDDLE_INSTRUCTION_SET    the name of the lowest level, or of the only instruction set if there are no levels
# A Kokkos that was built for one processor (Kokkos_ARCH_...) adds that processor's flags to all code that uses it.
set(heddle_kokkos_flags "")
foreach(target Kokkos::kokkos Kokkos::kokkoscore)
  if(TARGET ${target})
    get_target_property(flags ${target} INTERFACE_COMPILE_OPTIONS)
    list(APPEND heddle_kokkos_flags ${flags})
  endif()
endforeach()

set(HEDDLE_CPU_LEVELS "")
set(HEDDLE_ARCH_FLAGS "")
if(HEDDLE_NATIVE OR HEDDLE_SANITIZE) # a sanitizer build runs on this machine
  set(HEDDLE_ARCH_FLAGS -march=native)
  set(HEDDLE_INSTRUCTION_SET "compiled for one machine, HEDDLE_NATIVE")
elseif(heddle_kokkos_flags MATCHES "-m(arch|cpu)=|-mavx|-xHost")
  set(HEDDLE_INSTRUCTION_SET "for the processor of Kokkos")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(HEDDLE_CPU_LEVELS x86-64-v2 x86-64-v3 x86-64-v4 x86-64-v4-bf16 x86-64-v4-amx)
elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(HEDDLE_CPU_LEVELS armv8-a armv8.2-a-sve)
else()
  set(HEDDLE_INSTRUCTION_SET "for the compiler's default")
endif()
if(HEDDLE_CPU_LEVELS)
  list(GET HEDDLE_CPU_LEVELS 0 HEDDLE_INSTRUCTION_SET)
  set(HEDDLE_ARCH_FLAGS -march=${HEDDLE_INSTRUCTION_SET})
  if(HEDDLE_KOKKOS_HAS_DEVICE)
    set(HEDDLE_CPU_LEVELS "")
  endif()
endif()

if(NOT HEDDLE_KERNEL_LEVELS MATCHES "^(all|native)$")
  message(FATAL_ERROR "HEDDLE_KERNEL_LEVELS is \"${HEDDLE_KERNEL_LEVELS}\"; expected all or native.")
elseif(HEDDLE_CPU_LEVELS AND HEDDLE_KERNEL_LEVELS STREQUAL "native")
  # heddle_this_machine_has(RESULT MACROS...): whether the compiler defines these for this machine.
  include(CheckCXXSourceCompiles)
  function(heddle_this_machine_has result)
    list(TRANSFORM ARGN REPLACE "(.+)" "defined(\\1)")
    list(JOIN ARGN " && " all)
    set(CMAKE_REQUIRED_FLAGS -march=native)
    check_cxx_source_compiles("
      #if !(${all})
      #error
      #endif
      int main() {}" ${result})
  endfunction()
  heddle_this_machine_has(HEDDLE_MACHINE_HAS_V3 __AVX2__ __FMA__)
  heddle_this_machine_has(HEDDLE_MACHINE_HAS_V4 __AVX512F__ __AVX512BW__ __AVX512CD__ __AVX512DQ__ __AVX512VL__)
  heddle_this_machine_has(HEDDLE_MACHINE_HAS_BF16 __AVX512BF16__ __AVX512VNNI__)
  heddle_this_machine_has(HEDDLE_MACHINE_HAS_AMX __AMX_TILE__ __AMX_BF16__ __AMX_INT8__)
  heddle_this_machine_has(HEDDLE_MACHINE_HAS_SVE __ARM_FEATURE_SVE)
  set(HEDDLE_CPU_LEVELS ${HEDDLE_INSTRUCTION_SET})
  if(HEDDLE_MACHINE_HAS_SVE)
    list(APPEND HEDDLE_CPU_LEVELS armv8.2-a-sve)
  elseif(HEDDLE_MACHINE_HAS_V4 AND HEDDLE_MACHINE_HAS_BF16)
    list(APPEND HEDDLE_CPU_LEVELS x86-64-v4-bf16)
    if(HEDDLE_MACHINE_HAS_AMX)
      list(APPEND HEDDLE_CPU_LEVELS x86-64-v4-amx) # the same libraries, with one file more
    endif()
  elseif(HEDDLE_MACHINE_HAS_V4)
    list(APPEND HEDDLE_CPU_LEVELS x86-64-v4)
  elseif(HEDDLE_MACHINE_HAS_V3)
    list(APPEND HEDDLE_CPU_LEVELS x86-64-v3)
  endif()
endif()
