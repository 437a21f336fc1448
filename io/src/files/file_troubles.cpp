#include <heddle/io/files/file_troubles.hpp>
#include <map>
#include <mutex>
#include <utility>

namespace heddle {

namespace {

struct Troubles {
  std::mutex mutex;
  std::map<std::string, std::string> texts;  ///< by their files
};

Troubles& troubles() {
  static Troubles of_process;
  return of_process;
}

}  // namespace

void note_file_trouble(std::string const& file, std::string text) {
  std::lock_guard const lock(troubles().mutex);
  troubles().texts[file] = std::move(text);
}

std::vector<std::string> take_file_troubles() {
  std::lock_guard const lock(troubles().mutex);
  std::vector<std::string> texts;
  for (auto const& [file, text] : std::exchange(troubles().texts, {})) {
    texts.push_back(file + ": " + text);
  }
  return texts;
}

}  // namespace heddle
