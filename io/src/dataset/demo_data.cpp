#include <unicode/rbnf.h>

#include <algorithm>
#include <array>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/dataset/demo_data.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {
namespace {

// Rules of ICU's RuleBasedNumberFormat; its own ones are not the same in every version.
constexpr char const* english_words = R"(
    0: zero; one; two; three; four; five; six; seven; eight; nine; ten; eleven; twelve; thirteen; fourteen; fifteen;
       sixteen; seventeen; eighteen; nineteen;
    20: twenty[->>]; 30: thirty[->>]; 40: forty[->>]; 50: fifty[->>]; 60: sixty[->>]; 70: seventy[->>];
    80: eighty[->>]; 90: ninety[->>];
    100: << hundred[ and >>]; 1000: << thousand[>%%rest>];
    %%rest: 1: ' and =%main=; 100: ' =%main=;)";
/// A one is "eins" at the end of a word, and "ein" inside it.
constexpr char const* german_words = R"(
    0: null; eins; zwei; drei; vier; fünf; sechs; sieben; acht; neun; zehn; elf; zwölf; dreizehn; vierzehn; fünfzehn;
       sechzehn; siebzehn; achtzehn; neunzehn;
    20: [>%%inside>und]zwanzig; 30: [>%%inside>und]dreißig; 40: [>%%inside>und]vierzig; 50: [>%%inside>und]fünfzig;
    60: [>%%inside>und]sechzig; 70: [>%%inside>und]siebzig; 80: [>%%inside>und]achtzig; 90: [>%%inside>und]neunzig;
    100: <%%inside<hundert[>>]; 1000: <%%inside<tausend[>>];
    %%inside: 1: ein; =%main=; 100: <%%inside<hundert[>%%inside>];)";

icu::RuleBasedNumberFormat format_of(char const* rules) {
  UParseError place{};
  UErrorCode code = U_ZERO_ERROR;
  icu::RuleBasedNumberFormat format(icu::UnicodeString::fromUTF8(std::string("%main:") + rules), icu::Locale::getRoot(),
                                    place, code);
  if (U_FAILURE(code)) {
    throw Error("numbers cannot be put into words: {}", u_errorName(code));
  }
  return format;
}

std::string in_words(icu::RuleBasedNumberFormat const& format, int64_t number) {
  if (number < 0 || number > largest_demo_number) {
    throw UsageError("{} cannot be put into words: expected 0 to {}", number, largest_demo_number);
  }
  icu::UnicodeString words;
  std::string text;
  format.format(number, words).toUTF8String(text);
  return text;
}

/// An integer in [0, bound), the same with every standard library (whose distributions are not). The modulo's bias is
/// below one in 10^13 here.
int64_t draw(std::mt19937_64& generator, int64_t bound) {
  return static_cast<int64_t>(generator() % static_cast<uint64_t>(bound));
}

void shuffle_numbers(std::span<int64_t> numbers, std::mt19937_64& generator) {
  for (auto left = static_cast<int64_t>(numbers.size()); left > 1; --left) {
    std::swap(numbers[static_cast<std::size_t>(left - 1)], numbers[static_cast<std::size_t>(draw(generator, left))]);
  }
}

/// `count` different numbers in random order, equally many of each number of digits as far as there are enough of
/// them.
std::vector<int64_t> choose_numbers(int64_t count, std::mt19937_64& generator) {
  std::vector<int64_t> chosen;
  int64_t low = 0;
  for (int64_t digits = 1; digits <= 6; ++digits) {
    int64_t const high = low == 0 ? 10 : low * 10;
    int64_t const share = (count - std::ssize(chosen)) / (7 - digits);
    std::vector<int64_t> candidates;
    for (int64_t number = low; number < high; ++number) {
      candidates.push_back(number);
    }
    shuffle_numbers(candidates, generator);
    candidates.resize(static_cast<std::size_t>(std::min(share, std::ssize(candidates))));
    chosen.insert(chosen.end(), candidates.begin(), candidates.end());
    low = high;
  }
  shuffle_numbers(chosen, generator);
  return chosen;
}

void write_lines(std::filesystem::path const& path, std::span<int64_t const> numbers,
                 std::string (*describe)(int64_t)) {
  std::string text;
  for (int64_t const number : numbers) {
    text += describe(number) + '\n';
  }
  replace_file(path, text);
}

void check(DemoDataOptions const& options) {
  // With half of all numbers, even the largest share still has numbers to be drawn from.
  constexpr int64_t max = 500'000;
  int64_t const min = std::min({options.train - 200, options.valid - 1, options.test - 1});
  int64_t const largest = std::max({options.train, options.valid, options.test});
  if (min < 0 || largest > max || options.train + options.valid + options.test > max) {
    throw UsageError(
        "{} training, {} validation and {} test numbers: expected at least 200, 1 and 1, and at most {} "
        "together",
        readable_count(options.train), readable_count(options.valid), readable_count(options.test),
        readable_count(max));
  }
}

}  // namespace

std::string english_number(int64_t number) {
  static icu::RuleBasedNumberFormat const format = format_of(english_words);
  return in_words(format, number);
}

std::string german_number(int64_t number) {
  static icu::RuleBasedNumberFormat const format = format_of(german_words);
  return in_words(format, number);
}

void write_demo_data(DemoDataOptions const& options) {
  check(options);
  std::mt19937_64 generator(options.seed);
  std::vector<int64_t> numbers = choose_numbers(options.train + options.valid + options.test, generator);
  // Numbers below a hundred come first, into train, which is shuffled again afterwards.
  std::stable_partition(numbers.begin(), numbers.end(), [](int64_t number) { return number < 100; });
  auto const all = std::span(numbers);
  auto const train_count = static_cast<std::size_t>(options.train);
  auto const valid_count = static_cast<std::size_t>(options.valid);
  shuffle_numbers(all.first(train_count), generator);
  std::array<std::pair<char const*, std::span<int64_t const>>, 3> const parts = {{
      {"train", all.first(train_count)},
      {"valid", all.subspan(train_count, valid_count)},
      {"test", all.subspan(train_count + valid_count)},
  }};

  PendingDirectory directory(options.directory, PendingDirectory::Target::any);
  std::set<std::string> files;
  for (auto const& [name, part] : parts) {
    for (auto const& [extension, describe] : {std::pair{".en", &english_number}, std::pair{".de", &german_number}}) {
      std::string const& file = *files.insert(std::string(name) + extension).first;
      if (!options.overwrite && std::filesystem::exists(options.directory / file)) {
        throw UsageError("{} exists: choose another --out, or replace it with --overwrite",
                         (options.directory / file).string());
      }
      write_lines(directory.path() / file, part, describe);
    }
  }
  std::function<bool(std::string const&)> replaced;
  if (options.overwrite) {
    replaced = [&](std::string const& name) { return files.contains(name); };
  }
  directory.commit(replaced);
}

}  // namespace heddle
