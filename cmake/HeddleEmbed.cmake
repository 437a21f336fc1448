# heddle_embed_plugins(TARGET DIRECTORY): compiles the files of the example plug-ins below DIRECTORY into TARGET, as
# apps/src/commands/embedded_files.hpp declares them.
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
#include "commands/embedded_files.hpp"

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

# heddle_embed_text(TARGET HEADER FUNCTION TEXT): compiles into TARGET the function that HEADER declares, which returns TEXT.
function(heddle_embed_text target header function text)
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp")
  file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT [[
#include "@header@"

std::string_view heddle::@function@() {
  return R"heddle(@text@)heddle";
}
]])
  target_sources(${target} PRIVATE "${source}")
endfunction()

# heddle_embed_page(TARGET DIRECTORY): compiles page.html in DIRECTORY into TARGET, with style.css and the scripts in the order of
# their names, as apps/src/inspection/page/page.hpp declares it.
function(heddle_embed_page target directory)
  file(GLOB scripts CONFIGURE_DEPENDS "${directory}/*.js")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${scripts} "${directory}/page.html" "${directory}/style.css")
  file(READ "${directory}/page.html" page)
  file(READ "${directory}/style.css" style)
  set(code "")
  foreach(script IN LISTS scripts)
    file(READ "${script}" text)
    string(APPEND code "${text}")
  endforeach()
  string(REPLACE "{{style}}" "${style}" page "${page}")
  string(REPLACE "{{scripts}}" "${code}" page "${page}")
  heddle_embed_text(${target} "inspection/page/page.hpp" page_frame "${page}")
endfunction()

# heddle_embed_page_files(TARGET DIRECTORY): compiles page.html, page.js and page.css in DIRECTORY into TARGET, as
# apps/src/serving/http/page_files.hpp declares them.
function(heddle_embed_page_files target directory)
  foreach(file page.html page.js page.css)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${directory}/${file}")
    file(READ "${directory}/${file}" "${file}")
  endforeach()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/page_files.cpp")
  file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT [[
#include "serving/http/page_files.hpp"

namespace heddle {
namespace {

constexpr PageFile files_of_page[] = {
    {"/", "text/html; charset=utf-8", R"heddle(@page.html@)heddle"},
    {"/page.js", "text/javascript; charset=utf-8", R"heddle(@page.js@)heddle"},
    {"/page.css", "text/css; charset=utf-8", R"heddle(@page.css@)heddle"},
};

}  // namespace

std::span<PageFile const> page_files() {
  return files_of_page;
}

}  // namespace heddle
]])
  target_sources(${target} PRIVATE "${source}")
endfunction()

# heddle_embed_job_script(TARGET FUNCTION FILE): compiles into TARGET the function of apps/src/commands/embedded_files.hpp that returns FILE.
function(heddle_embed_job_script target function file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(READ "${file}" script)
  heddle_embed_text(${target} "commands/embedded_files.hpp" ${function} "${script}")
endfunction()
