# heddle_embed_plugins(TARGET DIRECTORY): compiles the files of the example plug-ins below DIRECTORY into TARGET, as
# apps/src/commands/plugin_templates.hpp declares them.
function(heddle_embed_plugins target directory)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE "${directory}" "${directory}/*/*")
  set(entries "")
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${directory}/${file}")
    file(READ "${directory}/${file}" text)
    get_filename_component(kind "${file}" DIRECTORY)
    get_filename_component(name "${file}" NAME)
    string(APPEND entries "    {\"${kind}\", \"${name}\", R\"heddle(${text})heddle\"},\n")
  endforeach()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/plugin_templates.cpp")
  file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT [[
#include "commands/plugin_templates.hpp"

namespace heddle {
namespace {

constexpr TemplateFile files[] = {
@entries@};

}  // namespace

std::span<TemplateFile const> template_files() {
  return files;
}

}  // namespace heddle
]])
  target_sources(${target} PRIVATE "${source}")
endfunction()

# heddle_embed_page(TARGET DIRECTORY): compiles the files of the page in DIRECTORY into TARGET, as apps/src/inspection/page/page.hpp
# declares them.
function(heddle_embed_page target directory)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE "${directory}" "${directory}/*")
  set(entries "")
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${directory}/${file}")
    file(READ "${directory}/${file}" text)
    string(APPEND entries "    {\"${file}\", R\"heddle(${text})heddle\"},\n")
  endforeach()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/page_files.cpp")
  file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT [[
#include "inspection/page/page.hpp"

namespace heddle {
namespace {

constexpr PageFile files[] = {
@entries@};

}  // namespace

std::span<PageFile const> page_files() {
  return files;
}

}  // namespace heddle
]])
  target_sources(${target} PRIVATE "${source}")
endfunction()
