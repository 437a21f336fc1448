#include "translation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <ostream>

namespace heddle {

namespace po = boost::program_options;

void add_generation_options(po::options_description& description, GenerationOptions& options) {
  description.add_options()  //
      ("beam", po::value(&options.beam_size)->value_name("N")->default_value(options.beam_size),
       "hypotheses kept for each sentence; 1 is greedy")  //
      ("length-penalty",
       po::value(&options.length_penalty)->value_name("X")->default_value(options.length_penalty, "1"),
       "a hypothesis's score is its log-probability divided by its tokens (and its end) to this power")  //
      ("max-length", po::value(&options.max_length)->value_name("N")->default_value(options.max_length),
       "most tokens of a translation; 0: twice the source's and 50 more")  //
      ("batch-tokens", po::value(&options.batch_tokens)->value_name("N")->default_value(options.batch_tokens),
       "hypotheses times source tokens that are computed together; more is faster and takes more memory");
}

std::vector<std::vector<Translation>> translate(TrainedModel& model, std::vector<SourceLine> const& lines,
                                                GenerationOptions const& options, std::ostream& notes) {
  std::vector<std::vector<std::int32_t>> sources;
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < lines.size(); ++place) {
    auto tokens = model.vocabulary().source.encode(lines[place].text);
    if (tokens.empty()) {
      continue;
    }
    if (static_cast<std::int64_t>(tokens.size()) > model.longest_source()) {
      notes << fmt::format("heddle: line {}: {} tokens; only the first {} are translated (model.max_length = {})\n",
                           lines[place].number, readable_count(tokens.size()), readable_count(model.longest_source()),
                           model.longest_source() + 1);
      tokens.resize(static_cast<std::size_t>(model.longest_source()));
    }
    sources.push_back(std::move(tokens));
    places.push_back(place);
  }
  std::vector<std::vector<Translation>> translations(lines.size(), {{"", 0}});
  auto const generated = model.generate(sources, options);
  for (std::size_t index = 0; index < generated.size(); ++index) {
    auto& line = translations[places[index]];
    line.clear();
    for (Hypothesis const& hypothesis : generated[index]) {
      std::string text = model.vocabulary().target.decode(hypothesis.tokens);
      std::replace(text.begin(), text.end(), '\n', ' ');  // possible with a vocabulary that has byte pieces
      line.push_back({std::move(text), hypothesis.score});
    }
  }
  return translations;
}

}  // namespace heddle
