// Decode and prefill of a resident model beside what this machine can do at most: a loop that only
// reads the bytes a token touches, and one that only multiplies. Everything in one process, rounds
// interleaved, medians and spread.
//
// usage: bench_model_speed MODEL [ISA,...] [THREADS,...] [ROUNDS] [LONG_PROMPT]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/bare_loops.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cpu/thread_pool.h"
#include "engine/engine.h"

namespace terrace::bench {

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Series {
    std::vector<double> values;

    void add(double value) { values.push_back(value); }

    [[nodiscard]] double at(double share) const {
        std::vector<double> sorted = values;
        std::sort(sorted.begin(), sorted.end());
        return sorted.empty() ? 0.0
                              : sorted[static_cast<std::size_t>(
                                    share * static_cast<double>(sorted.size() - 1) + 0.5)];
    }

    [[nodiscard]] double median() const { return at(0.5); }
};

/// Reads `bytes` with every thread of the pool; seconds.
double read_seconds(cpu::ThreadPool& pool, const Buffer& buffer, std::int64_t bytes, bool wide) {
    constexpr std::int64_t kTile = 1 << 20;
    static std::int64_t first = 0;
    const std::int64_t tiles = bytes / kTile;
    const std::int64_t all = buffer.bytes() / kTile;
    std::vector<std::uint64_t> sums(64);
    const Clock::time_point start = Clock::now();
    pool.run(tiles, [&](std::int64_t tile, int worker) {
        const std::byte* data = buffer.data() + (first + tile) % all * kTile;
        sums[static_cast<std::size_t>(worker)] +=
            wide ? read_avx512(data, kTile) : read_avx2(data, kTile);
    });
    const double elapsed = seconds(start);
    first = (first + tiles) % all;
    return elapsed * static_cast<double>(bytes) / static_cast<double>(tiles * kTile);
}

/// int8 multiplications a second of one thread, times the threads.
double multiply_rate(cpu::ThreadPool& pool, MultiplyLoop loop) {
    std::vector<double> done(64);
    const Clock::time_point start = Clock::now();
    pool.run(pool.n_threads(), [&](std::int64_t tile, int /*worker*/) {
        done[static_cast<std::size_t>(tile)] = static_cast<double>(loop(2'000'000));
    });
    double all = 0;
    for (const double d : done) {
        all += d;
    }
    return all / seconds(start);
}

std::vector<std::int32_t> prompt_of(std::int64_t n) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < n; ++i) {
        ids.push_back(static_cast<std::int32_t>((i * 7919 + 13) % 2000 + 10));
    }
    return ids;
}

GenerateResult generate(Engine& engine, std::int64_t prompt, std::int64_t n) {
    GenerateRequest request;
    request.prompt = prompt_of(prompt);
    request.sampling.temperature = 0;
    request.max_new_tokens = n;
    request.ignore_eos = true;
    Result<GenerateResult> result = engine.session().generate(request, nullptr, {});
    if (!result) {
        std::fprintf(stderr, "%s\n", result.error().text().c_str());
        std::exit(1);
    }
    return std::move(result).value();
}

/// Bytes of weights that one token reads, and multiplications it makes.
struct TokenCost {
    std::int64_t bytes = 0;
    double macs = 0;
};

TokenCost token_cost(const Engine& engine) {
    const ModelFolder& folder = engine.folder();
    TokenCost cost;
    for (const TensorSource& t : folder.checkpoint->dense()) {
        if (t.role != TensorRole::Embedding && !t.in_mtp_layer) {
            cost.bytes += t.payload.bytes + t.scales.bytes;
            cost.macs += static_cast<double>(t.rows * t.cols);
        }
    }
    const std::int64_t experts = folder.facts.n_sparse_layers * folder.config.num_experts_per_tok;
    cost.bytes += experts * folder.facts.sizes.one_expert;
    cost.macs += static_cast<double>(experts) * 3 *
                 static_cast<double>(folder.config.moe_intermediate_size) *
                 static_cast<double>(folder.config.hidden_size);
    return cost;
}

void measure(const char* model,
             const std::string& isa,
             std::int64_t threads,
             int rounds,
             std::int64_t long_prompt) {
    Result<ModelFolder> folder = open_model_folder(model);
    if (!folder) {
        std::fprintf(stderr, "%s\n", folder.error().text().c_str());
        std::exit(1);
    }
    EngineConfig config;
    config.isa = isa;
    config.threads = threads;
    config.slots = 0;
    config.draft_depth = 0;
    Result<std::unique_ptr<Engine>> opened =
        Engine::open(std::move(folder).value(), config, nullptr, {});
    if (!opened) {
        std::fprintf(stderr, "%s\n", opened.error().text().c_str());
        std::exit(1);
    }
    Engine& engine = **opened;
    const TokenCost cost = token_cost(engine);
    cpu::CpuDevice device;
    cpu::ThreadPool pool(static_cast<int>(threads));
    Result<Buffer> buffer = device.allocate(std::int64_t{1} << 30);
    const bool wide = isa == "avx512";
    std::fill_n(reinterpret_cast<std::uint64_t*>(buffer->data()), buffer->bytes() / 8, 1);
    const MultiplyLoop loop = wide ? multiply_vpdpbusd_512 : multiply_maddubs;

    Series read;
    Series rate;
    Series decode0;
    Series decode2k;
    Series prefill512;
    constexpr std::int64_t kTokens = 24;
    for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < 8; ++i) {
            read.add(read_seconds(pool, *buffer, cost.bytes, wide));
        }
        engine.session().reset();
        decode0.add(generate(engine, 1, kTokens + 1).decode_seconds / kTokens);
        engine.session().reset();
        const GenerateResult short_prompt = generate(engine, 512, 1);
        prefill512.add(512 / short_prompt.prefill_seconds);
        rate.add(multiply_rate(pool, loop));
        static_cast<void>(generate(engine, 2048, 1));
        decode2k.add(generate(engine, 2048, kTokens + 1).decode_seconds / kTokens);
    }
    engine.session().reset();
    Series prefill_long;
    for (int round = 0; round < (rounds + 2) / 3; ++round) {
        engine.session().reset();
        prefill_long.add(static_cast<double>(long_prompt) /
                         generate(engine, long_prompt, 1).prefill_seconds);
    }
    const double heads = static_cast<double>(engine.folder().config.num_attention_heads);
    const double layers = static_cast<double>(engine.folder().config.num_hidden_layers);
    const double extra = decode2k.median() - decode0.median();
    const double limit = rate.median() / cost.macs;
    std::printf("%s, %lld threads: %.0f MB a token\n", isa.c_str(), static_cast<long long>(threads),
                static_cast<double>(cost.bytes) / 1e6);
    std::printf("  read loop        %6.2f ms a token (%.2f .. %.2f), %.1f GB/s\n",
                1e3 * read.median(), 1e3 * read.at(0.1), 1e3 * read.at(0.9),
                static_cast<double>(cost.bytes) / 1e9 / read.median());
    std::printf(
        "  decode at 0      %6.2f ms (%.2f .. %.2f), %.1f tok/s, share of the read loop %.3f\n",
        1e3 * decode0.median(), 1e3 * decode0.at(0.1), 1e3 * decode0.at(0.9), 1 / decode0.median(),
        read.median() / decode0.median());
    std::printf(
        "  decode at 2048   %6.2f ms (%.2f .. %.2f), share of the rate at 0 %.3f, attention %.1f "
        "ns a key, head and thread\n",
        1e3 * decode2k.median(), 1e3 * decode2k.at(0.1), 1e3 * decode2k.at(0.9),
        decode0.median() / decode2k.median(),
        1e9 * extra * static_cast<double>(threads) / (2060 * heads * layers));
    std::printf(
        "  prefill 512      %6.1f tok/s (%.1f .. %.1f), share of the int8 loop %.3f (limit %.0f "
        "tok/s, %.0f G/s)\n",
        prefill512.median(), prefill512.at(0.1), prefill512.at(0.9), prefill512.median() / limit,
        limit, rate.median() / 1e9);
    std::printf("  prefill %-5lld    %6.1f tok/s (%.1f .. %.1f), share of the int8 loop %.3f\n",
                static_cast<long long>(long_prompt), prefill_long.median(), prefill_long.at(0.1),
                prefill_long.at(0.9), prefill_long.median() / limit);
    std::fflush(stdout);
}

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    std::size_t at = 0;
    while (at <= text.size()) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        parts.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return parts;
}

}  // namespace

}  // namespace terrace::bench

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(
            stderr,
            "usage: bench_model_speed MODEL [ISA,...] [THREADS,...] [ROUNDS] [LONG_PROMPT]\n");
        return 2;
    }
    using namespace terrace::bench;
    for (const std::string& isa : split(argc > 2 ? argv[2] : "avx512,avx2")) {
        for (const std::string& threads : split(argc > 3 ? argv[3] : "1,2")) {
            measure(argv[1], isa, std::atoi(threads.c_str()), argc > 4 ? std::atoi(argv[4]) : 5,
                    argc > 5 ? std::atoi(argv[5]) : 4096);
        }
    }
    return 0;
}
