# `cmake --install` gives a prefix that works wherever it is moved to: bin/horon, parts in lib/horon, headers,
# static libraries and a CMake package: find_package(horon), then link horon::comm.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/horon)
get_property(libraries GLOBAL PROPERTY HORON_LIBRARIES)
get_property(parts GLOBAL PROPERTY HORON_PARTS)

install(TARGETS horon RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(CODE "file(CREATE_LINK horon \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/horonrun SYMBOLIC)")
install(TARGETS horon_c EXPORT horonTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ${libraries} EXPORT horonTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(parts)
  install(TARGETS ${parts} LIBRARY DESTINATION lib/horon)
endif()
# The public headers and no others.
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/horon/public_headers.txt)
file(STRINGS ${PROJECT_SOURCE_DIR}/horon/public_headers.txt public_headers REGEX "^horon/")
list(REMOVE_ITEM public_headers horon/base/version.h)  # generated
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/generated/horon/base/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/horon/base)
file(GLOB documents CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${documents} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/horon)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/horon PATTERN check.sh EXCLUDE)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/install_libtorch.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/horon)
install(EXPORT horonTargets NAMESPACE horon:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/horonConfig.cmake.in ${PROJECT_BINARY_DIR}/horonConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/horonConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/horonConfig.cmake ${PROJECT_BINARY_DIR}/horonConfigVersion.cmake
  DESTINATION ${package_dir})

# The libraries that a bare machine lacks travel along in lib/horon (found by RPATH); the C and C++ run-time
# libraries do not: they come with every system, and their pieces must be of one version.
install(CODE [[
  set(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  file(GLOB gloo "${prefix}/lib/horon/libhoron_*gloo.so")
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES "${prefix}/bin/horon" LIBRARIES "${prefix}/lib/libhoron.so" ${gloo}
    RESOLVED_DEPENDENCIES_VAR needed UNRESOLVED_DEPENDENCIES_VAR missing
    PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread|resolv|util|anl|stdc\\+\\+|gcc_s)\\.so" "^ld-linux")
  foreach(library IN LISTS needed)
    file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/lib/horon" TYPE SHARED_LIBRARY FOLLOW_SYMLINK_CHAIN FILES ${library})
  endforeach()
]] COMPONENT bundle EXCLUDE_FROM_ALL)

set(CPACK_PACKAGE_NAME horon)
set(CPACK_PACKAGE_VENDOR "Horon")
set(CPACK_PACKAGE_CONTACT "Horon maintainers <maintainers@horon.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_FILE_NAME horon-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_HORON_BINARY_DIR ${PROJECT_BINARY_DIR})
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/HoronCPack.cmake)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The MPI libraries come as dependencies of the parts; which mpirun to have is the user's choice.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin | mpich")
include(CPack)
