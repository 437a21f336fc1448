# `cmake --install`: the program, the library and the core library with their headers, the package that an out-of-tree plug-in finds, the
# documentation, examples, job templates for three schedulers, and a module for Lmod.
include(CMakePackageConfigHelpers)

set(heddle_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/heddle")

install(TARGETS heddle RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(TARGETS heddle_core heddle_checks heddle_shared EXPORT heddleTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/core/include/" "${PROJECT_SOURCE_DIR}/apps/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
# Headers of io that those of apps include.
foreach(header checkpoint/checkpoint dataset/dataset tensors/tensor_info text/text text/text_files tokenizers/text_form tokenizers/tokenizer)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES "${PROJECT_SOURCE_DIR}/io/include/heddle/io/${header}.hpp" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/heddle/io/${folder}")
endforeach()
install(FILES README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/apps/examples" DESTINATION "${CMAKE_INSTALL_DATADIR}/heddle")
install(PROGRAMS
  "${PROJECT_SOURCE_DIR}/apps/slurm/train.sbatch"
  "${PROJECT_SOURCE_DIR}/apps/pbs/train.pbs"
  "${PROJECT_SOURCE_DIR}/apps/lsf/train.lsf"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/heddle")
install(FILES "${PROJECT_SOURCE_DIR}/packaging/lmod/heddle.lua"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/heddle/modulefiles/heddle" RENAME "${PROJECT_VERSION}.lua")
install(EXPORT heddleTargets NAMESPACE heddle:: DESTINATION "${heddle_package_dir}")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/heddleConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/heddleConfig.cmake" INSTALL_DESTINATION "${heddle_package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/heddleConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/heddleConfig.cmake"
  "${PROJECT_BINARY_DIR}/heddleConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/HeddleFixKokkos.cmake"
  DESTINATION "${heddle_package_dir}")
