# A Debian package: `scripts/package`, or after a build `cmake --build build/release --target man && cpack --config
# build/release/CPackConfig.cmake`. packaging/debian/finish.cmake turns the installed files into what Debian expects.
find_program(HEDDLE_HELP2MAN help2man)
if(HEDDLE_HELP2MAN)
  add_custom_target(man
    COMMAND "${PROJECT_SOURCE_DIR}/packaging/write-man-pages" $<TARGET_FILE:heddle> "${PROJECT_BINARY_DIR}/man"
    VERBATIM)
  add_dependencies(man heddle)
endif()
install(DIRECTORY "${PROJECT_BINARY_DIR}/man/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" OPTIONAL)
install(FILES "${PROJECT_SOURCE_DIR}/packaging/completions/heddle.bash"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME heddle)
install(FILES "${PROJECT_SOURCE_DIR}/packaging/completions/_heddle" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME heddle)
set(CPACK_PACKAGE_CONTACT "The Heddle maintainers <maintainers@heddle.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trainer of encoder-decoder Transformers on clusters")
set(CPACK_PACKAGE_DESCRIPTION
  "Heddle trains Transformers for translation and language modelling under MPI,
with tensor, pipeline, context and data parallelism, verified checkpoints and
kernels for several instruction sets. It translates, scores and serves
models, and exchanges them with transformers, Marian and CTranslate2.")
set(CPACK_PACKAGING_INSTALL_PREFIX "/usr")
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/packaging/debian/finish.cmake")
set(CPACK_HEDDLE_DEBIAN "${PROJECT_SOURCE_DIR}/packaging/debian")
set(CPACK_HEDDLE_LIBDIR "${CMAKE_INSTALL_LIBDIR}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "slurm-client")
include(CPack)
