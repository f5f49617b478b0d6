# LibTorch for the trainer: HORON_TORCH points to one (with include/ and lib/), else tools/install_libtorch.sh fetches it.
# Its own CMake files want a CUDA toolkit, so this is a target of ours.
set(HORON_WITH_TORCH AUTO CACHE STRING "Build the trainer: AUTO, ON or OFF")
set(HORON_TORCH "" CACHE PATH "A LibTorch with include/ and lib/; empty: the one of tools/install_libtorch.sh")
set(HORON_HAVE_TORCH OFF)
# LibTorch is not built for sanitizers: the trainer is left out with them unless asked for.
if(NOT HORON_WITH_TORCH STREQUAL "OFF" AND NOT (HORON_SANITIZE AND HORON_WITH_TORCH STREQUAL "AUTO"))
  set(torch_root "${HORON_TORCH}")
  if(NOT torch_root)
    execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/install_libtorch.sh --check OUTPUT_VARIABLE torch_root
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(torch_root AND EXISTS ${torch_root}/lib/libtorch_cpu.so)
    set(HORON_HAVE_TORCH ON)
    add_library(horon_torch INTERFACE)
    target_include_directories(horon_torch SYSTEM INTERFACE ${torch_root}/include ${torch_root}/include/torch/csrc/api/include)
        # It brings a fmt of another version than ours: headers only, then.
    target_compile_definitions(horon_torch INTERFACE FMT_HEADER_ONLY)
    target_link_libraries(horon_torch INTERFACE ${torch_root}/lib/libtorch_cpu.so ${torch_root}/lib/libc10.so)
    
    
        file(STRINGS ${torch_root}/include/torch/headeronly/version.h numbers REGEX "VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
    string(REGEX REPLACE "[^0-9;]" "" numbers "${numbers}")
    string(REPLACE ";" "." HORON_TORCH_VERSION "${numbers}")
    set(HORON_TORCH_LIB ${torch_root}/lib)
  elseif(HORON_WITH_TORCH STREQUAL "ON")
    message(FATAL_ERROR "HORON_WITH_TORCH=ON, but there is no LibTorch: run tools/install_libtorch.sh or set HORON_TORCH")
  endif()
endif()
message(STATUS "part TORCH: ${HORON_HAVE_TORCH} ${HORON_TORCH_VERSION} ${torch_root}")
