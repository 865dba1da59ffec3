# One image for agents and for tool servers; one process a container.
#
#   docker build -t rapkit .
#
# An agent. Its rapkit.toml has a public_url, which tools call back, and a token, for those who may use it: without one `rapkit up` refuses
# to listen on an address that others reach.
#   docker run -v agent:/data -v ./rapkit.toml:/etc/rapkit/rapkit.toml:ro -e MY_TOKEN -e OPENAI_API_KEY -e RAPKIT_SECRET_KEY -p 8700:8700 rapkit
#
# A tool server, from a file of yours.
#   docker run -v weather:/data -v ./weather.py:/app/weather.py:ro -e AGENT_TOKEN -e RAPKIT_SECRET_KEY -p 8001:8001 \
#       rapkit serve weather.py --host 0.0.0.0 --token agent=env:AGENT_TOKEN --store sqlite:////data/weather.db \
#       --public-url https://weather.example.com
#
# /data has to be on a local disk. Add --init if tools start programs of their own, and stop with `docker stop -t 30`.

FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir --constraint constraints.txt build hatchling \
    && python -m build --no-isolation --wheel --outdir /wheels . \
    && python -m venv /opt/rapkit
RUN wheel=$(echo /wheels/*.whl) \
    && /opt/rapkit/bin/pip install --no-cache-dir --constraint constraints.txt "rapkit[agent,oauth] @ file://$wheel"

FROM python:3.11-slim-bookworm
COPY --from=build /opt/rapkit /opt/rapkit
RUN useradd --system --uid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin rapkit \
    && install --directory --owner rapkit --group rapkit --mode 0700 /data
ENV PATH="/opt/rapkit/bin:$PATH" PYTHONUNBUFFERED=1
USER 10001
WORKDIR /app
VOLUME /data
EXPOSE 8700 8001

# Whichever of the two it is. If it listens elsewhere, give it another --health-cmd.
HEALTHCHECK --interval=30s --timeout=10s --start-period=15s CMD ["python", "-c", "import http.client, socket, sys; port = next(each for each in (8700, 8001) if not socket.socket().connect_ex(('127.0.0.1', each))); asked = http.client.HTTPConnection('127.0.0.1', port, timeout=5); asked.request('GET', '/healthz'); sys.exit(asked.getresponse().status != 200)"]

# Not through a shell: SIGTERM has to reach rapkit, so that it ends in order.
ENTRYPOINT ["rapkit"]
CMD ["up", "-c", "/etc/rapkit/rapkit.toml", "--host", "0.0.0.0", "--store", "sqlite:////data/agent.db"]
