# The tarball brings its libraries along; the .deb depends on Debian's.
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(CPACK_INSTALL_CMAKE_PROJECTS
    "${CPACK_HORON_BINARY_DIR};horon;ALL;/;${CPACK_HORON_BINARY_DIR};horon;bundle;/")
endif()
