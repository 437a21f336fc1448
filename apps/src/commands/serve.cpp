
#include <algorithm>
#include <set>

#include "command_line/text_command.hpp"
#include "commands.hpp"
#include "serving/http/server.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;
using Milliseconds = std::chrono::milliseconds;

/// The values of options that are not the server's own types.
struct ServeValues {
  std::vector<std::string> models = {};
  int port = 8080;
  double timeout = 60;
  double client_timeout = 20;
  double stop_timeout = 30;
  double latency_budget = 5;
};

void add_limits(OptionsDescription& description, ServingLimits& limits, ServeValues& values) {
  description.add_options()                                                                                     //
      ("queue", with_default(limits.queue, "N"), "lines of texts that wait; more are refused with status 429")  //
      ("max-connections", with_default(limits.connections, "N"), "connections at a time")                       //
      ("max-body", with_default(limits.body_bytes, "BYTES"), "of a request")                                    //
      ("max-texts", with_default(limits.texts, "N"), "of a request, and lines of all its texts")                //
      ("max-text", with_default(limits.text_bytes, "BYTES"), "of a line of a text")                             //
      ("max-beam", with_default(limits.beam_size, "N"), "hypotheses for a text")                                //
      ("timeout", with_default(values.timeout, "SECONDS"), "in which a request must be translated")             //
      ("client-timeout", with_default(values.client_timeout, "SECONDS"),
       "in which a client must send a request, and receive its answer; slower ones are cut off")  //
      ("stop-timeout", with_default(values.stop_timeout, "SECONDS"),
       "in which requests that run may finish after SIGTERM, SIGINT or SIGHUP");
}

CommandSyntax serve_syntax(ServerOptions& options, ServeValues& values) {
  CommandSyntax syntax;
  syntax.name = "serve";
  syntax.usage = "--checkpoint DIRECTORY [--port N] [options]";
  syntax.summary = R"(Translates over HTTP: POST /v1/translate takes JSON, and / is a page to try it. Only this machine
reaches it, unless --listen names another address, which needs a token or --no-auth. SIGTERM,
SIGINT and SIGHUP let requests that run finish.)";
  add_model_options(syntax.options, options.models.first, "; several with names, of which a request chooses one");
  syntax.options.add_options()  //
      ("model", po::value(&values.models)->value_name("NAME=DIRECTORY")->composing(),
       "a further model, which requests choose by its name; that of --checkpoint is \"default\"; may be repeated")  //
      ("listen", with_default(options.access.address, "ADDRESS"),
       "the address to serve on; 0.0.0.0 and :: are all of this machine")                //
      ("port", with_default(values.port, "N"), "0: any that is free, which is printed")  //
      ("token-file", po::value(&options.access.token_file)->value_name("FILE"),
       "a file with the token that clients must send as Authorization: Bearer TOKEN")  //
      ("no-auth", po::bool_switch(&options.access.open),
       "everybody who reaches the address may translate")  //
      ("latency-budget", with_default(values.latency_budget, "MS"),
       "that a text may wait for others before they enter a running batch together")  //
      ("batch-tokens", with_default(options.worker.batch_tokens, "N"),
       "hypotheses times sentence tokens that a process computes together");
  add_forbid(syntax.options, options.models.choices);
  add_shortlist(syntax.options, options.models.choices);
  add_threads(syntax.options, options.threads, false);
  add_limits(syntax.options, options.limits, values);
  return syntax;
}

Milliseconds time_of(char const* option, double value, double unit) {
  if (!(value >= 0 && value * unit <= 1e9)) {
    throw UsageError("{} {}: expected a time of at least 0", option, value);
  }
  return Milliseconds(static_cast<std::int64_t>(value * unit));
}

/// Throws UsageError where a limit leaves nothing.
void require_positive(ServerOptions const& options) {
  ServingLimits const& limits = options.limits;
  for (auto const& [name, value] :
       {std::pair("--queue", limits.queue), std::pair("--max-connections", limits.connections),
        std::pair("--max-body", limits.body_bytes), std::pair("--max-texts", limits.texts),
        std::pair("--max-text", limits.text_bytes), std::pair("--max-beam", limits.beam_size),
        std::pair("--batch-tokens", options.worker.batch_tokens)}) {
    if (value < 1) {
      throw UsageError("{} {}: expected at least 1", name, value);
    }
  }
}

void choose_models(ServerOptions& options, std::vector<std::string> const& models) {
  std::set<std::string> names{ServedModels::first_name};
  for (std::string const& model : models) {
    std::size_t const end = model.find('=');
    if (end == model.npos || end == 0 || end + 1 == model.size() || !names.insert(model.substr(0, end)).second) {
      throw UsageError("--model {}: expected NAME=DIRECTORY with another name for each, and none \"{}\"", model,
                       ServedModels::first_name);
    }
    options.models.others.emplace_back(model.substr(0, end), model.substr(end + 1));
  }
  if (options.models.first.checkpoint.empty() && models.empty()) {
    throw UsageError("serve: --checkpoint is missing: the model to translate with");
  }
  TokenChoices const& choices = options.models.choices;
  if (options.models.first.checkpoint.empty() && !(choices.forbid.empty() && choices.shortlist.empty())) {
    throw UsageError("--forbid and --shortlist are for the model of --checkpoint, which is missing");
  }
}

}  // namespace

ExitCode run_serve(Arguments const& arguments) {
  ServerOptions options;
  ServeValues values;
  parse_options(serve_syntax(options, values), arguments);
  require_positive(options);
  choose_models(options, values.models);
  if (values.port < 0 || values.port > 65535) {
    throw UsageError("--port {}: expected 0 to 65535", values.port);
  }
  options.port = static_cast<std::uint16_t>(values.port);
  options.limits.all_body_bytes = std::max(options.limits.all_body_bytes, 2 * options.limits.body_bytes);
  if (values.timeout <= 0 || values.client_timeout <= 0) {
    throw UsageError("--timeout and --client-timeout must be more than 0");
  }
  options.limits.timeout = time_of("--timeout", values.timeout, 1000);
  options.limits.client = time_of("--client-timeout", values.client_timeout, 1000);
  options.limits.stop = time_of("--stop-timeout", values.stop_timeout, 1000);
  options.worker.latency_budget = time_of("--latency-budget", values.latency_budget, 1);
  serve(options);
  return ExitCode::done;
}

}  // namespace heddle
